package serverhalf

// The programs that measure those of bpf/server.c.
//go:generate sh -c "exec go tool bpf2go -cc ${DOLLAR}{BPF_CLANG:-clang-19} -target bpfel -go-package serverhalf -output-suffix _test serverBench ../../bpf/bench/server.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -I../../bpf/include -I../../bpf -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu"
