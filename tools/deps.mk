# deps.mk - what this machine has; included by the Makefile.
#
# tools/deps installs what is missing and writes found.mk: FOUND (features) and ISAS (instruction sets).
# make begins anew when found.mk changes, so what was just installed counts at once. Objects that ask for
# a header (__has_include) are compiled again when a feature comes or goes.
CUDA_HOME  ?= $(patsubst %/bin/nvcc,%,$(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc)))
NVCC       ?= $(CUDA_HOME)/bin/nvcc
DEPS       := CC="$(CC)" CUDA_HOME="$(CUDA_HOME)" NVCC="$(NVCC)" tools/deps
ifneq ($(filter-out clean help deps uninstall dist,$(or $(MAKECMDGOALS),all)),)
include $(BUILD)/found.mk
endif
build/deps.ok: tools/deps
	@mkdir -p build && $(DEPS) && touch $@
build/deps.test.ok: build/deps.ok
	@$(DEPS) --test && touch $@
$(BUILD)/found.mk: always | build/deps.ok
	@$(DEPS) --found $@
always:
$(patsubst %.c,$(BUILD)/%.o,$(shell grep -rl --include='*.c' __has_include src)): $(BUILD)/found.mk
