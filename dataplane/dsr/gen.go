package dsr

// Generates the programs and the Go types of their maps from C. The object is committed,
// so that building needs no clang. The same sources give the same bytes. BPF_CLANG
// selects another compiler than clang-19.
//go:generate sh -c "exec go tool bpf2go -cc ${DOLLAR}{BPF_CLANG:-clang-19} -target bpfel -go-package dsr -type addr -type tuple -type server_method -type server_place -type server_counter -type flow_state -type server_flow -type source_list -type source_rule -type known_balancer dsr ../../bpf/dsr.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../../bpf/include -I../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu"
