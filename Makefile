# Plimsoll. The two commands of the README are `make demo` and `make test`; `make help` lists all.
#
# Sources are globbed: adding a file touches no build file. A source named X.isa.c is compiled once
# per instruction set (baseline, AVX2, AVX-512) with PL_ISA set to its suffix; callers choose at run
# time. BUILD=dir gives a build of its own; SAN=address,undefined or SAN=thread a sanitized one.

CC      ?= cc
BUILD   ?= build/$(if $(SAN),$(subst $(comma),-,$(SAN)),release)$(if $(filter clang%,$(notdir $(CC))),-clang)
PREFIX  ?= /usr/local
VERSION := $(shell sed -n 's/.*define PL_VERSION_STRING *"\(.*\)"/\1/p' include/plimsoll.h)
# All cores, unless -j says otherwise.
ifeq ($(filter -j%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc)
endif
comma   := ,

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
 -Wpointer-arith -Wcast-qual -Wwrite-strings -Wundef -Wvla -Wformat=2 -Winit-self \
 -Wredundant-decls -Wdouble-promotion -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers \
 -Wno-unknown-warning-option -Wno-format-truncation
ifneq ($(DEV)$(CI),)
WARN += -Werror
endif
OPT  := -O2 -g
ifneq ($(SAN),)
OPT  := -O1 -g -fno-omit-frame-pointer -fsanitize=$(SAN) -fno-sanitize-recover=all
LSAN := -fsanitize=$(SAN)
endif
CFLAGS_ALL := -std=c11 -D_GNU_SOURCE $(OPT) $(WARN) -fno-common -fPIC -fvisibility=hidden \
 -ffp-contract=off -fno-math-errno -Iinclude -Isrc -MMD -MP $(CFLAGS)
# Kernels: more unrolling and vectorising, never -ffast-math (results must not depend on grouping).
KERNEL := -O3 -fno-trapping-math
LIBS   := -ldnnl -lfyaml -ljansson -lxxhash -l:libgomp.so.1 -lpthread -ldl -lm

LIB_SRC  := $(filter-out src/cuda/% src/mpi/%,$(wildcard src/*/*.c)) $(wildcard recipes/*/*.c)
ISA_SRC  := $(filter %.isa.c,$(LIB_SRC))
PLAIN    := $(filter-out %.isa.c,$(LIB_SRC))
CLI_SRC  := $(wildcard cli/*.c)
# The text of generated kernels is made and tested without CUDA.
TEST_SRC := $(wildcard tests/*.c tests/workloads/*.c src/cuda/codegen*.c)
LIB_OBJ  := $(PLAIN:%.c=$(BUILD)/%.o) \
 $(foreach i,base avx2 avx512,$(ISA_SRC:%.isa.c=$(BUILD)/%.$(i).o))
CLI_OBJ  := $(CLI_SRC:%.c=$(BUILD)/%.o)
TEST_OBJ := $(TEST_SRC:%.c=$(BUILD)/%.o)

# CUDA kernels for the tests without a card: those that launch through cuda/launch.h are compiled as
# C++ for the simulator of tests/cudasim.
SIM_CXX ?= $(if $(filter clang%,$(notdir $(CC))),$(subst clang,clang++,$(CC)),g++)
SIM_SRC := $(shell grep -l '"cuda/\(launch\|merge\).h"' src/cuda/*.cu) $(wildcard tests/cudasim/*.cpp)
SIM_C   := src/cuda/many.c src/cuda/conv.c src/cuda/conv_phase.c src/cuda/conv_product.c src/cuda/conv_split.c src/cuda/matmul.c src/cuda/matmul_ops.c src/cuda/matmul_split.c src/cuda/matmul_tiles.c src/cuda/matmul_vector.c src/cuda/attention.c $(wildcard tests/cudasim/*.c)
SIM_OBJ := $(SIM_SRC:%=$(BUILD)/cudasim/%.o) $(SIM_C:%=$(BUILD)/cudasim/%.o)
SIM_FLAGS := -x c++ -std=c++17 -O1 -g -D_GNU_SOURCE -fPIC -fvisibility=hidden -ffp-contract=off \
 -fno-math-errno -fno-exceptions -fno-rtti -fno-threadsafe-statics -Wall -Wextra -Wshadow \
 -Wno-unknown-pragmas -Wno-pass-failed $(if $(DEV)$(CI),-Werror) -Iinclude -Isrc -Itests/cudasim -Itests -MMD -MP \
 $(if $(filter-out thread,$(SAN)),-fno-omit-frame-pointer -fsanitize=$(SAN) -fno-sanitize-recover=all \
  $(if $(filter clang%,$(notdir $(CC))),-fno-sanitize=function))

# The CUDA plug-in, where nvcc is found. CUDA_ARCHS: numbers of sm_ targets, or "all"; the default is
# quick to compile and runs on any card from the T4 on (PTX for those that are not named).
CUDA_HOME  ?= $(patsubst %/bin/nvcc,%,$(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc)))
NVCC       ?= $(CUDA_HOME)/bin/nvcc
CUDA_ARCHS ?= 90
ifneq ($(CUDA_HOME),)
PLUGIN     := $(BUILD)/libplimsoll_cuda.so
endif
CUDA_SRC   := $(wildcard src/cuda/*.c)
CUDA_CU    := $(wildcard src/cuda/*.cu)
CUDA_OBJ   := $(CUDA_SRC:%.c=$(BUILD)/%.o) $(CUDA_CU:%.cu=$(BUILD)/%.cu.o)
NVCC_ARCH  := $(if $(filter all,$(CUDA_ARCHS)),-arch=all,\
 $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a)$(comma)code=sm_$(a)) \
 -gencode arch=compute_75$(comma)code=compute_75)
# A fifth of the size, where the compiler can.
NVCC_SMALL := $(if $(PLUGIN),$(shell $(NVCC) --help | grep -q -e '--compress-mode' && echo -compress-mode=size))
NVCC_FLAGS := -std=c++17 -O3 -lineinfo -fmad=false -Xcompiler -fPIC,-ffp-contract=off,-fno-math-errno \
 -Iinclude -Isrc -MMD -MP $(NVCC_ARCH) $(NVCC_SMALL)
CUDA_LIBS  := -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcudart_static -lcublasLt -lcudnn -lnvrtc \
 -lpthread -ldl -lrt -lm -lstdc++

# The MPI plug-in, where mpicc is found: several ranks need it, one does not.
MPICC   ?= $(shell command -v mpicc)
ifneq ($(MPICC),)
MPI_PLUGIN := $(BUILD)/libplimsoll_mpi.so
MPI_CFLAGS := $(patsubst -I%,-isystem %,$(filter -I%,$(shell $(MPICC) --showme:compile 2>/dev/null || $(MPICC) -compile_info)))
MPI_LIBS   := $(filter -L% -l% -Wl%,$(shell $(MPICC) --showme:link 2>/dev/null || $(MPICC) -link_info))
endif

all: $(BUILD)/plimsoll $(MPI_PLUGIN) $(if $(SAN),,$(PLUGIN))

$(BUILD)/libplimsoll.a: $(LIB_OBJ)
	@rm -f $@
	@$(AR) rcs $@ $^

$(BUILD)/plimsoll: $(CLI_OBJ) $(BUILD)/libplimsoll.a
	@echo "  link $@"
	@$(CC) $(LSAN) -rdynamic -o $@ $(CLI_OBJ) -Wl,--whole-archive $(BUILD)/libplimsoll.a -Wl,--no-whole-archive $(LIBS)

BENCHES := $(addprefix $(BUILD)/,pl_bench pl_profile pl_costs pl_loader pl_step pl_predict pl_cuda_groups pl_cuda_products pl_sampler.so)

$(BUILD)/pl_bench $(BUILD)/pl_profile $(BUILD)/pl_costs $(BUILD)/pl_loader $(BUILD)/pl_step: $(BUILD)/%: $(BUILD)/bench/%.o $(BUILD)/libplimsoll.a
	@echo "  link $@"
	@$(CC) $(LSAN) -rdynamic -o $@ $< -Wl,--whole-archive $(BUILD)/libplimsoll.a -Wl,--no-whole-archive $(LIBS)

$(BUILD)/pl_predict: $(BUILD)/bench/pl_predict.o $(filter $(BUILD)/tests/workloads/%,$(TEST_OBJ)) $(BUILD)/libplimsoll.a
	@echo "  link $@"
	@$(CC) $(LSAN) -rdynamic -o $@ $(filter %.o,$^) -Wl,--whole-archive $(BUILD)/libplimsoll.a -Wl,--no-whole-archive $(LIBS)

$(BUILD)/bench/pl_predict.o: CFLAGS_ALL += -Itests

# The text of generated kernels needs no CUDA; the rest of src/cuda is the plug-in's.
TEXT_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard src/cuda/codegen*.c))
$(BUILD)/pl_cuda_products: $(BUILD)/bench/pl_cuda_products.o $(BUILD)/libplimsoll.a
	@echo "  link $@"
	@$(CC) $(LSAN) -rdynamic -o $@ $(BUILD)/bench/pl_cuda_products.o -Wl,--whole-archive $(BUILD)/libplimsoll.a -Wl,--no-whole-archive $(LIBS)

$(BUILD)/pl_cuda_groups: $(BUILD)/bench/pl_cuda_groups.o $(TEXT_OBJ) $(BUILD)/libplimsoll.a
	@echo "  link $@"
	@$(CC) $(LSAN) -rdynamic -o $@ $(BUILD)/bench/pl_cuda_groups.o $(TEXT_OBJ) -Wl,--whole-archive $(BUILD)/libplimsoll.a -Wl,--no-whole-archive $(LIBS)

# A driver, a management library and a plug-in for tests of what happens around a card (tests/fake). all/ has
# the first two, driver/ only the first.
FAKES := $(addprefix $(BUILD)/fake/,libplimsoll_cuda.so all/libnvidia-ml.so.1 all/libcuda.so.1 driver/libcuda.so.1)
$(BUILD)/fake/libplimsoll_cuda.so: tests/fake/plugin.c src/cuda/watch.c src/cuda/device_int.h src/rt/device.h | build/deps.ok
	@mkdir -p $(@D)
	@echo "  link $@"
	@$(CC) $(filter-out -MMD -MP,$(CFLAGS_ALL)) $(LSAN) -Itests/cudasim -shared -o $@ tests/fake/plugin.c src/cuda/watch.c -ldl
$(BUILD)/fake/all/libnvidia-ml.so.1: tests/fake/nvml.c | build/deps.ok
	@mkdir -p $(@D)
	@$(CC) $(filter-out -MMD -MP -fsanitize% -fno-sanitize%,$(CFLAGS_ALL)) -shared -o $@ $<
$(BUILD)/fake/%/libcuda.so.1: | build/deps.ok
	@mkdir -p $(@D)
	@echo 'int pl_fake_driver;' | $(CC) -x c -fPIC -shared -o $@ -

$(BUILD)/pl_test: $(TEST_OBJ) $(SIM_OBJ) $(BUILD)/libplimsoll.a | $(FAKES) $(BUILD)/odd.so
	@echo "  link $@"
	@$(CC) $(LSAN) -rdynamic -o $@ $(TEST_OBJ) $(SIM_OBJ) -Wl,--whole-archive $(BUILD)/libplimsoll.a -Wl,--no-whole-archive $(LIBS)

$(BUILD)/libplimsoll_mpi.so: $(BUILD)/src/mpi/mpi.o
	@echo "  link $@"
	@$(CC) $(LSAN) -shared -o $@ $^ $(MPI_LIBS)

$(BUILD)/src/mpi/%.o: src/mpi/%.c | build/deps.ok
	@mkdir -p $(@D)
	@echo "  cc $<"
	@$(CC) $(CFLAGS_ALL) $(MPI_CFLAGS) -c -o $@ $<

# Networks that are drawn, as a user's own recipe (tests/odd_net.c, tools/cuda-odd).
$(BUILD)/odd.so: $(BUILD)/tests/odd_net.o
	@echo "  link $@"
	@$(CC) $(LSAN) -shared -o $@ $<

# To preload: where the main thread's time goes (bench/pl_sampler.c).
$(BUILD)/pl_sampler.so: $(BUILD)/bench/pl_sampler.o
	@echo "  link $@"
	@$(CC) -shared -o $@ $< -lrt

$(BUILD)/libplimsoll_cuda.so: $(CUDA_OBJ)
	@echo "  link $@"
	@$(CC) -shared -o $@ $(CUDA_OBJ) $(CUDA_LIBS)

$(BUILD)/src/cuda/%.cu.o: src/cuda/%.cu
	@mkdir -p $(@D)
	@echo "  nvcc $<"
	@$(NVCC) $(NVCC_FLAGS) -c -o $@ $<

$(BUILD)/src/cuda/%.o: src/cuda/%.c | build/deps.ok
	@mkdir -p $(@D)
	@echo "  cc $<"
	@$(CC) $(CFLAGS_ALL) -isystem $(CUDA_HOME)/include -c -o $@ $<

# Library kernels on a card, without the rest of the plug-in: tests/cuda/probe_lib.c.
PROBE_LIB := $(addprefix $(BUILD)/src/cuda/,$(addsuffix .o,lib choice codegen_cache matmul matmul_ops matmul_split matmul_tiles matmul_vector conv conv_plan conv_graph conv_phase conv_product conv_split attention \
 tail.cu split.cu vector.cu columns.cu conv_direct.cu conv_thin.cu conv_thin_mma.cu depthwise.cu attention_plain.cu attention_mma.cu attention_split.cu attention_split_bwd.cu attention_f32.cu))
$(BUILD)/tests/cuda/%.o: tests/cuda/%.c | build/deps.ok
	@mkdir -p $(@D)
	@echo "  cc $<"
	@$(CC) $(CFLAGS_ALL) -isystem $(CUDA_HOME)/include -c -o $@ $<
$(BUILD)/probe_lib: $(PROBE_LIB) $(BUILD)/tests/cuda/probe_lib.o $(BUILD)/tests/cuda/probe_card.o $(BUILD)/libplimsoll.a
	@echo "  link $@"
	@$(CC) -rdynamic -o $@ $(filter %.o,$^) $(BUILD)/libplimsoll.a $(CUDA_LIBS) -Wl,--as-needed $(LIBS)

# The tests run the program too.
TEST_ENV := PL_BIN=$(BUILD)/plimsoll CC="$(CC)" $(if $(PL_TEST_LONG),PL_TEST_LONG=1)

# Tests at once: one more than cores, because some wait; few, because many use all cores themselves.
TEST_JOBS ?= $(shell n=$$(nproc); echo $$((n < 4 ? n + 1 : 4)))

isa_flags_base   := -DPL_ISA=base
isa_flags_avx2   := -DPL_ISA=avx2 -mavx2 -mfma -mf16c
isa_flags_avx512 := -DPL_ISA=avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512
define isa_rule
$(BUILD)/%.$(1).o: %.isa.c | build/deps.ok
	@mkdir -p $$(@D)
	@echo "  cc $$< ($(1))"
	@$(CC) $(CFLAGS_ALL) $(if $(SAN),,$(KERNEL)) $(isa_flags_$(1)) -c -o $$@ $$<
endef
$(foreach i,base avx2 avx512,$(eval $(call isa_rule,$(i))))

$(BUILD)/%.o: %.c | build/deps.ok
	@mkdir -p $(@D)
	@echo "  cc $<"
	@$(CC) $(CFLAGS_ALL) $(if $(SAN),,$(if $(filter src/cpu/% src/ops/% src/data/% src/plan/pack%,$<),$(KERNEL))) -c -o $@ $<

$(BUILD)/cudasim/%.c.o: %.c | build/deps.ok
	@mkdir -p $(@D)
	@echo "  cc $< (simulator)"
	@$(CC) $(CFLAGS_ALL) -Itests/cudasim -Itests -c -o $@ $<

$(BUILD)/cli/page.o: cli/page.html
$(BUILD)/cli/report_html.o: cli/report.html

$(BUILD)/cudasim/%.o: % | build/deps.ok
	@mkdir -p $(@D)
	@echo "  c++ $< (simulator)"
	@$(SIM_CXX) $(SIM_FLAGS) -c -o $@ $<

build/deps.ok: tools/deps
	@mkdir -p build && CC="$(CC)" tools/deps && touch $@

# ---- what people type ---------------------------------------------------------------------------
deps: ## install what the build needs (Debian, Ubuntu); other targets do it when something lacks
	@tools/deps

demo: all ## plan and train a small network for about a minute
	@$(BUILD)/plimsoll train cloud/demo

test: all $(BUILD)/pl_test ## build and run every test (minutes)
	@tools/layers
	@$(TEST_ENV) $(BUILD)/pl_test -j $(TEST_JOBS)

check-all: ## both compilers, sanitizers, long tests, fuzzers, headers, ranks killed (hours; tools/check-all --list)
	+@MAKE="$(MAKE)" tools/check-all $(STAGES)

test-cuda: all $(BUILD)/pl_test ## the tests that need an NVIDIA card: every op, plans, budgets
	@tools/test-cuda $(BUILD)

bench-cuda: all $(BUILD)/pl_step ## a step on an NVIDIA card beside PyTorch's: time, memory, first step
	@bench/cuda.sh $(BUILD)

benches: $(BENCHES) ## the programs of bench/

carry: all benches $(BUILD)/pl_test $(BUILD)/odd.so ## build/carry: what another machine with a card needs to test and bench
	@tools/carry $(BUILD)

bench: all $(BUILD)/pl_bench ## time the engine against PyTorch (where it is installed)
	@bench/bench.sh $(BUILD)

install: all ## copy program, headers, library and documents under PREFIX (/usr/local)
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin include lib share/doc/plimsoll)
	install -m 755 $(BUILD)/plimsoll $(DESTDIR)$(PREFIX)/bin/
	install -m 644 include/plimsoll*.h $(DESTDIR)$(PREFIX)/include/
	install -m 644 $(BUILD)/libplimsoll.a $(DESTDIR)$(PREFIX)/lib/
	$(if $(PLUGIN)$(MPI_PLUGIN),install -d $(DESTDIR)$(PREFIX)/lib/plimsoll && install -m 755 $(PLUGIN) $(MPI_PLUGIN) $(DESTDIR)$(PREFIX)/lib/plimsoll/)
	install -m 644 LICENSE README.md docs/*.* $(DESTDIR)$(PREFIX)/share/doc/plimsoll/

clean: ## remove everything that was built
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14

-include $(wildcard $(BUILD)/bench/*.d $(BUILD)/tests/cuda/*.d $(BUILD)/src/mpi/*.d) $(CUDA_OBJ:.o=.d) $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TEST_OBJ:.o=.d) $(SIM_OBJ:.o=.d)
.PHONY: all deps demo test check-all test-cuda bench-cuda benches carry bench install clean help
