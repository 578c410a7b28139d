package kernel

// This generates the programs and the Go types of their maps from C; see dataplane/dsr.
//go:generate sh -c "exec go tool bpf2go -cc ${DOLLAR}{BPF_CLANG:-clang-19} -target bpfel -go-package kernel -type vdn_reason -type pod_way vdn ../../../bpf/vdn.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../../../bpf/include -I../../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu"
