package serverhalf

//go:generate go tool bpf2go -cc clang-19 -target bpfel -go-package serverhalf -type local_vip_key -type local_vip -type server_flow -type tuple -type server_method -type server_place -type server_counter server ../../bpf/server.c -- -O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../../bpf/include -I/usr/include/x86_64-linux-gnu
