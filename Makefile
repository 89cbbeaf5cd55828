# Plimsoll. The two commands of the README are `make demo` and `make test`; `make help` lists all.
#
# Sources are found by folder: adding a file touches no build file. A source named X.isa.c is compiled
# once per instruction set (baseline; on x86 also AVX2, AVX-512) with PL_ISA set to its suffix; callers
# choose at run time. BUILD=dir builds elsewhere; SAN=address,undefined or SAN=thread builds with sanitizers.
.SECONDEXPANSION:
.DEFAULT_GOAL := all
CC      ?= cc
BUILD   ?= build/$(if $(SAN),$(subst $(comma),-,$(SAN)),release)$(if $(filter clang%,$(notdir $(CC))),-clang)
PREFIX  ?= /usr/local
comma   := ,
ifeq ($(filter -j%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc)
endif

# ---- flags --------------------------------------------------------------------------------------
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
 -Wpointer-arith -Wcast-qual -Wwrite-strings -Wundef -Wvla -Wformat=2 -Winit-self \
 -Wredundant-decls -Wdouble-promotion -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers \
 -Wno-unknown-warning-option -Wno-format-truncation -Wno-enum-float-conversion -Wno-pass-failed \
 $(if $(SAN),,-Wframe-larger-than=8192) $(if $(DEV)$(CI),-Werror)
SAN_FLAGS := $(if $(SAN),-fno-omit-frame-pointer -fsanitize=$(SAN) -fno-sanitize-recover=all)
CFLAGS_ALL := -std=c11 -D_GNU_SOURCE $(if $(SAN),-O1,-O2) -g$(if $(CI),0) $(SAN_FLAGS) $(WARN) -fno-common -fPIC \
 -fvisibility=hidden -ffp-contract=off -fno-math-errno -Iinclude -Isrc -I. -MMD -MP $(CFLAGS)
# Kernels: more unrolling and vectorising, never -ffast-math (results must not depend on grouping).
KERNEL := $(if $(SAN),,-O3 -fno-trapping-math)
LIBS   := -ldnnl -lfyaml -ljansson -lxxhash -l:libgomp.so.1 -lpthread -ldl -lm

include tools/deps.mk

# ---- sources ------------------------------------------------------------------------------------
find_c     = $(sort $(shell find $(1) -name '*.c'))
LIB_SRC   := $(filter-out src/cuda/% src/mpi/% src/program/%,$(call find_c,src recipes))
LIB_OBJ   := $(patsubst %.c,$(BUILD)/%.o,$(filter-out %.isa.c,$(LIB_SRC))) \
 $(foreach i,$(ISAS),$(patsubst %.isa.c,$(BUILD)/%.$(i).o,$(filter %.isa.c,$(LIB_SRC))))
CLI_OBJ   := $(patsubst %.c,$(BUILD)/%.o,$(call find_c,cli))
# Replacements of system functions: in programs, never in the library (src/program/README.md).
PROGRAM   := $(patsubst %.c,$(BUILD)/%.o,$(wildcard src/program/*.c))

# ---- plug-ins -----------------------------------------------------------------------------------
# CUDA. CUDA_ARCHS: numbers of sm_ targets, or "all". Without it, those of this machine's GPUs that nvcc knows, or 90 (H100); with CI=true and
# no GPU none: nothing runs there, so kernels are compiled to PTX without optimisation, in a quarter of nvcc's time. GPUs that are not named
# run PTX, which their driver compiles: for 8.0 and newer, or for 7.5 and newer (T4) if CUDA_ARCHS has 75.
ifndef CUDA_ARCHS
CUDA_ARCHS := $(if $(PACKAGE),75 90,$(or $(filter $(patsubst compute_%,%,$(if $(CUDA_HOME),$(shell $(NVCC) --list-gpu-arch 2>/dev/null))),$(sort \
 $(subst .,,$(shell nvidia-smi --query-gpu=compute_cap --format=csv$(comma)noheader 2>/dev/null)))),$(if $(CI),,90)))
endif
OLDEST     := $(if $(filter 75 all,$(CUDA_ARCHS)),75,80)
# The plug-in of a package is for other GPUs than this machine's: its objects are apart.
CUDA_DIR   := $(BUILD)$(if $(PACKAGE),/package)
PLUGIN     := $(if $(filter CUDA,$(FOUND)),$(CUDA_DIR)/libplimsoll_cuda.so)
CUDA_OBJ   := $(patsubst %.c,$(CUDA_DIR)/%.o,$(call find_c,src/cuda)) $(patsubst %,$(CUDA_DIR)/%.o,$(wildcard src/cuda/*/*.cu))
NVCC_SMALL := $(if $(PACKAGE),$(shell $(NVCC) --help | grep -q -e '--compress-mode' && echo -compress-mode=size))
# PTX of 8.0 and all code for newer GPUs come from one front-end pass, half of the work of two: both have the same instructions.
NVCC_FLAGS  = -std=c++17 $(if $(CUDA_ARCHS),-O3,-O0 -Xcicc -O0) -fmad=false -Xcompiler -fPIC,-ffp-contract=off,-fno-math-errno -Iinclude -Isrc -MMD -MP \
 $(NVCC_CODE) $(NVCC_SMALL) $(CUDA_FLAGS)
NVCC_CODE   = $(if $(filter all,$(CUDA_ARCHS)),-arch=all,-gencode arch=compute_$(PTX)$(comma)code=compute_$(PTX) \
 $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(if $(filter 75,$(PTX) $(a)),$(a),$(PTX))$(comma)code=sm_$(a)))
# Products of a warpgroup are instructions of compute capability 9.0 alone.
$(patsubst %,$(CUDA_DIR)/src/cuda/attention/%.cu.o,attention_wgmma attention_wgmma_forward): NVCC_CODE := -gencode arch=compute_90a,code=$(if $(CUDA_ARCHS),sm_90a,compute_90a)
# Kernels on tensor cores are launched from 8.0 on.
PTX        := $(OLDEST)
$(patsubst %,$(CUDA_DIR)/%.o,$(shell grep -lE '"cuda/(matmul/mma|attention/attention_(split|mma)).h"' src/cuda/*/*.cu)): PTX := 80
$(CUDA_DIR)/src/cuda/device/open_device.o: CFLAGS_ALL += -DPL_CUDA_OLDEST=$(OLDEST)
CUDA_LIBS  := -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcudart_static -lcublasLt -lcudnn -lnvrtc \
 -lpthread -ldl -lrt -lm -lstdc++
# MPI, where mpicc is found: several ranks need it, one does not.
MPICC      ?= $(shell command -v mpicc)
MPI_PLUGIN := $(if $(MPICC),$(BUILD)/libplimsoll_mpi.so)
MPI_FLAGS  := $(if $(MPICC),$(shell $(MPICC) --showme:compile 2>/dev/null || $(MPICC) -compile_info))
MPI_LIBS   := $(if $(MPICC),$(filter -L% -l% -Wl%,$(shell $(MPICC) --showme:link 2>/dev/null || $(MPICC) -link_info)))
# SentencePiece, where its header and a C++ compiler are found: tokens of T5 models need it.
CXX        ?= g++
SP_PLUGIN  := $(if $(filter SentencePiece,$(FOUND)),$(BUILD)/libplimsoll_sentencepiece.so)
$(BUILD)/src/cuda/% $(BUILD)/package/src/cuda/% $(BUILD)/tests/cuda/probe/%: CFLAGS_ALL += $(if $(CUDA_HOME),-isystem $(CUDA_HOME)/include)
$(BUILD)/src/mpi/%: CFLAGS_ALL += $(patsubst -I%,-isystem %,$(filter -I%,$(MPI_FLAGS)))

all: $(BUILD)/plimsoll $(MPI_PLUGIN) $(if $(SAN),,$(SP_PLUGIN)) $(if $(SAN),,$(PLUGIN)) ## build the program and its plug-ins
	@$(DEPS) --summary $(BUILD)

# ---- compiling ----------------------------------------------------------------------------------
isa_base   := -DPL_ISA=base
isa_avx2   := -DPL_ISA=avx2 -mavx2 -mfma -mf16c
isa_avx512 := -DPL_ISA=avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512
say = @mkdir -p $(@D) && echo "  $(1)"
define isa_rule
$(BUILD)/%.$(1).o: %.isa.c | build/deps.ok
	$$(call say,cc $$< ($(1)))
	@$(CC) $$(CFLAGS_ALL) $(KERNEL) $(isa_$(1)) -c -o $$@ $$<
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$(i))))

define c_rule
$(1)/%.o: %.c | build/deps.ok
	$$(call say,cc $$<)
	@$(CC) $$(CFLAGS_ALL) $$(if $$(filter src/cpu/% src/ops/% src/data/% src/plan/pack/%,$$<),$(KERNEL)) \
 $$(if $$(filter tests/%,$$<),-O1 -g$(if $(CI),0,1)) -c -o $$@ $$<
endef
$(foreach d,$(sort $(BUILD) $(CUDA_DIR)),$(eval $(call c_rule,$(d))))
# Other architectures than those of the build before: its objects are compiled again.
$(CUDA_DIR)/cuda.archs: FORCE
	@mkdir -p $(@D); echo '$(CUDA_ARCHS) $(CUDA_FLAGS)' | cmp -s - $@ || echo '$(CUDA_ARCHS) $(CUDA_FLAGS)' > $@
FORCE:
$(CUDA_DIR)/%.cu.o: %.cu $(CUDA_DIR)/cuda.archs
	$(call say,nvcc $<)
	@$(NVCC) $(NVCC_FLAGS) -c -o $@ $<
# Files that a source embeds (plimsoll_embed.h), which -MMD does not see: all that are not C below its folder.
$(foreach s,$(shell grep -rlE --include='*.c' 'PL_(PRESET_)?EMBED' src cli recipes),$(eval \
 $(BUILD)/$(s:.c=.o): $(shell find $(dir $(s)) -type f ! -name '*.[ch]' ! -name '*.md')))
$(foreach s,$(shell grep -rl --include='*.c' PL_SOURCE_EMBED recipes),$(eval $(BUILD)/$(s:.c=.o): $(wildcard $(dir $(s))*.[ch])))

include tests/build.mk packaging/build.mk

# ---- linking ------------------------------------------------------------------------------------
LINK = $(CC) $(if $(SAN),-fsanitize=$(SAN)) -rdynamic -o $@ $(filter %.o,$^) -Wl,--whole-archive \
 $(BUILD)/libplimsoll.a -Wl,--no-whole-archive $(LIBS)
LINK_SO = $(CC) $(if $(SAN),-fsanitize=$(SAN)) -shared -o $@ $(filter %.o,$^)
$(BUILD)/libplimsoll.a: $(LIB_OBJ)
	@rm -f $@ && $(AR) rcs $@ $^
$(BUILD)/plimsoll: $(CLI_OBJ) $(PROGRAM) $(BUILD)/libplimsoll.a
	$(call say,link $@)
	@$(LINK)
BENCHES := $(patsubst bench/%.c,$(BUILD)/%,$(filter-out bench/pl_sampler.c,$(wildcard bench/pl_*.c)))
$(BENCHES): $(BUILD)/%: $(BUILD)/bench/%.o $(WORKLOADS) $(CODEGEN) $(PROGRAM) $(BUILD)/libplimsoll.a
	$(call say,link $@)
	@$(LINK)
$(BUILD)/libplimsoll_mpi.so: $(BUILD)/src/mpi/mpi.o
	$(call say,link $@)
	@$(LINK_SO) $(MPI_LIBS)
$(BUILD)/libplimsoll_sentencepiece.so: src/sentencepiece/sentencepiece.cc src/io/text/sentencepiece_plugin.h | $(BUILD)/found.mk
	$(call say,c++ $<)
	@$(CXX) -std=c++17 -O2 -g -Wall -Wextra $(if $(DEV)$(CI),-Werror) -fPIC -fvisibility=hidden -Iinclude -Isrc -shared -o $@ $< -lsentencepiece
# The plug-in of a package names no folder of this machine; the system's linker finds CUDA.
$(CUDA_DIR)/libplimsoll_cuda.so: $(CUDA_OBJ)
	$(call say,link $@)
	@$(LINK_SO) $(if $(PACKAGE),$(filter-out -Wl$(comma)-rpath%,$(CUDA_LIBS)),$(CUDA_LIBS))
$(BUILD)/pl_sampler.so: $(BUILD)/bench/pl_sampler.o
	@$(LINK_SO) -lrt
$(BUILD)/pl_nets.so: $(BUILD)/bench/nets.o
	@$(LINK_SO)

# ---- what people type ---------------------------------------------------------------------------
deps: ## install what the build needs (Debian, Ubuntu); other targets do it when something lacks
	@$(DEPS)
demo: all ## plan and train a small network for about a minute
	@$(BUILD)/plimsoll train cloud/demo
# Tests at once: two more than cores, because many wait; at most 8, because some use all cores themselves.
TEST_JOBS ?= $(shell n=$$(nproc); echo $$((n < 6 ? n + 2 : 8)))
test: all $(BUILD)/pl_test build/deps.test.ok ## build and run every test (minutes)
	@tools/check/source
	@PL_BIN=$(BUILD)/plimsoll CC="$(CC)" $(if $(PL_TEST_LONG),PL_TEST_LONG=1) $(BUILD)/pl_test -j $(TEST_JOBS)
check-all: ## both compilers, sanitizers, long tests, fuzzers, headers, ranks killed (hours; tools/check-all --list)
	+@MAKE="$(MAKE)" tools/check-all $(STAGES)
test-cuda: all $(BUILD)/pl_test ## the tests that need an NVIDIA GPU: every op, plans, budgets
	@tools/gpu/test $(BUILD)
bench-cuda: all $(BUILD)/pl_step ## a step on an NVIDIA GPU beside PyTorch's: time, memory, first step
	@bench/cuda.sh $(BUILD)
benches: $(BENCHES) $(BUILD)/pl_sampler.so $(BUILD)/pl_nets.so ## the programs of bench/
carry: all benches $(BUILD)/pl_test $(BUILD)/odd.so ## build/carry: what another machine with a GPU needs to test and bench
	@tools/gpu/carry $(BUILD)
bench: all $(BUILD)/pl_bench ## time the engine against PyTorch (where it is installed)
	@bench/bench.sh $(BUILD)
clean: ## remove everything that was built
	rm -rf build
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile packaging/build.mk | expand -t 14

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
.PHONY: FORCE all deps demo test check-all test-cuda bench-cuda benches carry bench clean help
