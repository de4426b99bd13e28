# Builds and runs the project on the host. Made by Deeploy ${version}. Do not edit.
CC ?= gcc
CFLAGS ?= -O2 -g
FLAGS := -std=gnu11 -Wall -Wextra -Werror -ffp-contract=off -DDP_HOST -I. -Ideeploy/include -Ideeploy/kernels -Ideeploy/host
SOURCES := Network.c main.c $(sort $(wildcard deeploy/common/*.c deeploy/host/*.c deeploy/kernels/*.c))
HEADERS := Network.h $(wildcard deeploy/*/*.h)

network: $(SOURCES) $(HEADERS)
	$(CC) $(FLAGS) $(CFLAGS) $(SOURCES) -o $@ -lm

run: network
	DP_HOST_FILES=hex ./network $(ROUNDS)

clean:
	rm -f network output_*.bin state_*.bin

.PHONY: run clean
