package bpf

// Generates the programs and the Go types of their maps from C. The objects are committed,
// so that building needs no clang. The same sources give the same bytes, which contain the
// sources' paths relative to the folder where the compiler runs. BPF_CLANG selects another
// compiler than clang-19.
//go:generate sh -c "cd .. && exec go tool bpf2go -output-dir bpf -cc ${DOLLAR}{BPF_CLANG:-clang-19} -target bpfel -go-package bpf -type layout -type method -type encapsulation -type scheduler -type survival -type drop_reason -type early -type frontend_flags -type flow_state -type syn_event -type syn_flow_flags -type step -type orphan -type addr -type guard_list -type guard_range_key -type drop_event -type watch_record -type watch_when Balancer ../../bpf/balancer.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../../bpf/include -I../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu"

// The same source for tracing: with events, and on copies (dataplane/xdp/trace).
//go:generate sh -c "cd .. && exec go tool bpf2go -output-dir bpf -cc ${DOLLAR}{BPF_CLANG:-clang-19} -target bpfel -go-package bpf -no-global-types -type trace_kind -type trace_flow -type trace_fragment -type trace_list Tracer ../../bpf/balancer.c -- -DTRACING -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../../bpf/include -I../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu"
