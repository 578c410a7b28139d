package xdpbench

// The programs of the live measurement, the harness around the load balancer's program,
// and the harness around the DSR agent's programs.
//go:generate sh -c "exec go tool bpf2go -cc ${DOLLAR}{BPF_CLANG:-clang-19} -target bpfel -go-package xdpbench live ../../../bpf/bench/live.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../../../bpf/include -I../../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu"
//go:generate sh -c "exec go tool bpf2go -cc ${DOLLAR}{BPF_CLANG:-clang-19} -target bpfel -go-package xdpbench -type attack_kind harness ../../../bpf/bench/harness.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../../../bpf/include -I../../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu"
//go:generate sh -c "exec go tool bpf2go -cc ${DOLLAR}{BPF_CLANG:-clang-19} -target bpfel -go-package xdpbench dsr ../../../bpf/bench/dsr.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -I../../../bpf/include -I../../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu"
