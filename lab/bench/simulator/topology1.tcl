# The LVS paper's first topology for ns-2, using what Debian's package contains: clients
# on 10 Mbit/s lines to a load balancer, which shares a 100 Mbit/s LAN with servers that
# answer immediately. Clients are assigned to servers round-robin.
# Arguments: clients, servers, the second to end at.
lassign $argv clients servers end
remove-all-packet-headers
add-packet-header IP RTP Ping LL Mac ARP Flags
set ns [new Simulator]
Queue set limit_ 100
set balancer [$ns node]
set members $balancer
for {set i 0} {$i < $servers} {incr i} {
	set server($i) [$ns node]
	append members " $server($i)"
}
$ns newLan $members 100Mb 1ms -llType LL -ifqType Queue/DropTail -macType Mac/802_3 -chanType Channel -phyType Phy/WiredPhy
for {set i 0} {$i < $clients} {incr i} {
	set client [$ns node]
	$ns duplex-link $client $balancer 10Mb 1ms DropTail
	set requests [new Agent/UDP]
	$requests set packetSize_ 500
	$ns attach-agent $client $requests
	set load [new Application/Traffic/CBR]
	$load set packetSize_ 500
	$load set interval_ 0.001
	$load attach-agent $requests
	set answers [new Agent/Ping]
	$answers set packetSize_ 500
	$ns attach-agent $server([expr $i % $servers]) $answers
	set sink($i) [new Agent/LossMonitor]
	$ns attach-agent $client $sink($i)
	$ns simplex-connect $requests $answers
	$ns simplex-connect $answers $sink($i)
	$ns at 1.0 "$load start"
}
proc finish {} {
	global clients sink
	set replies 0
	for {set i 0} {$i < $clients} {incr i} { incr replies [$sink($i) set npkts_] }
	puts "replies $replies"
	exit 0
}
$ns at $end finish
$ns run
