package packet

// Generates the programs and the Go types of their maps from C. The object is committed,
// so that building needs no clang. The same sources give the same bytes. BPF_CLANG
// selects another compiler than clang-19.
//go:generate sh -c "exec go tool bpf2go -cc ${DOLLAR}{BPF_CLANG:-clang-19} -target bpfel -go-package packet -type addr -type tuple -type packet_counter -type packet_flow -type packet_flow_kind -type packet_flow_state -type packet_mask packet ../../../bpf/proxy_tc.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../../../bpf/include -I../../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu"
