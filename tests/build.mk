# build.mk - the test program pl_test and what it needs; included by the Makefile.
#
# pl_test has every C file of tests/, but for the folders below that are programs or libraries of their own.
WORKLOADS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/workloads/*.c))
# The text of generated CUDA kernels is made and tested without CUDA.
CODEGEN   := $(patsubst %.c,$(BUILD)/%.o,$(wildcard src/cuda/codegen/codegen*.c))
TEST_OBJ  := $(CODEGEN) $(patsubst %.c,$(BUILD)/%.o,$(filter-out tests/cuda/probe/% tests/cudasim/% tests/fake/% \
 tests/fuzz/% tests/data/% tests/authors/authors_main.c,$(call find_c,tests)))
AUTHORS_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/authors/authors*.c) tests/recipes/peer.c tests/lib/lab.c)
# CUDA kernels for the tests without a GPU: those that launch through launch.h are compiled as C++ for
# the simulator of tests/cudasim, and so is the C code around them that needs no cuDNN graph.
SIM_OBJ   := $(patsubst %,$(BUILD)/cudasim/%.o,$(wildcard tests/cudasim/*.cpp tests/cudasim/*.c) src/cuda/ops/many.c \
 $(shell grep -l '"cuda/\(device/launch\|ops/merge\).h"' src/cuda/*/*.cu) \
 $(shell grep -LE '"cuda/(conv/conv|device/dnn)_graph.h"' src/cuda/conv/*.c src/cuda/matmul/*.c src/cuda/attention/*.c))
SIM_CXX   ?= $(if $(filter clang%,$(notdir $(CC))),$(subst clang,clang++,$(CC)),$(CXX))
SIM_FLAGS := -x c++ -std=c++17 -O1 -g$(if $(CI),0,1) -D_GNU_SOURCE -fPIC -fvisibility=hidden -ffp-contract=off -fno-math-errno \
 -fno-exceptions -fno-rtti -fno-threadsafe-statics -Wall -Wextra -Wshadow -Wno-unknown-pragmas -Wno-pass-failed \
 $(if $(DEV)$(CI),-Werror) -Iinclude -Isrc -Itests/cudasim -I. -MMD -MP \
 $(if $(filter-out thread,$(SAN)),$(SAN_FLAGS) $(if $(filter clang%,$(notdir $(CC))),-fno-sanitize=function))

# ---- the simulator --------------------------------------------------------------------------------
$(BUILD)/cudasim/%.c.o: %.c | build/deps.ok
	$(call say,cc $< (simulator))
	@$(CC) $(CFLAGS_ALL) -Itests/cudasim -c -o $@ $<
$(BUILD)/cudasim/%.o: % | build/deps.test.ok
	$(call say,c++ $< (simulator))
	@$(SIM_CXX) $(SIM_FLAGS) -c -o $@ $<

# ---- programs and libraries -----------------------------------------------------------------------
$(BUILD)/pl_test: $(TEST_OBJ) $(SIM_OBJ) $(PROGRAM) $(BUILD)/libplimsoll.a | $$(FAKES) $(BUILD)/odd.so
	$(call say,link $@)
	@$(LINK)
# Compares a folder of the authors' numbers: tools/check-authors.
$(BUILD)/pl_authors: $(AUTHORS_OBJ) $(PROGRAM) $(BUILD)/libplimsoll.a
	$(call say,link $@)
	@$(LINK)
# A user's own recipe with random networks (tests/lib/odd_recipe.c).
$(BUILD)/odd.so: $(BUILD)/tests/lib/odd_net.o $(BUILD)/tests/lib/odd_recipe.o
	@$(LINK_SO)
# Library kernels on a GPU, without the rest of the plug-in: tests/cuda/probe.
$(BUILD)/probe_lib: $(filter $(addprefix $(BUILD)/src/cuda/,device/lib.o device/choice.o device/dnn_graph.o device/dnn_plan.o codegen/codegen_cache.o ops/fill.cu.o matmul/% \
 conv/% attention/%),$(CUDA_OBJ)) $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/cuda/probe/*.c)) $(BUILD)/libplimsoll.a
	$(call say,link $@)
	@$(CC) -rdynamic -o $@ $(filter %.o,$^) $(BUILD)/libplimsoll.a $(CUDA_LIBS) -Wl,--as-needed $(LIBS)
# A driver, a management library and a plug-in for tests of what happens around a GPU (tests/fake). all/
# has the first two, driver/ only the first.
FAKES := $(addprefix $(BUILD)/fake/,fault.so webp/libwebp.so.7 uring/liburing.so.2 libplimsoll_cuda.so all/libnvidia-ml.so.1 all/libcuda.so.1 driver/libcuda.so.1)
$(BUILD)/fake/libplimsoll_cuda.so: $(BUILD)/cudasim/tests/fake/plugin.c.o $(BUILD)/cudasim/src/cuda/device/used_memory.c.o
	$(call say,link $@)
	@$(LINK_SO) -ldl
# Faults of a file system, for LD_PRELOAD.
$(BUILD)/fake/fault.so: tests/fake/fault.c tests/fake/fault_paths.h | build/deps.ok
	$(call say,link $@)
	@$(CC) $(filter-out -MMD -MP -fsanitize% -fno-sanitize%,$(CFLAGS_ALL)) -shared -o $@ $< -ldl
$(BUILD)/fake/webp/libwebp.so.7: tests/fake/webp.c | build/deps.ok
	$(call say,link $@)
	@$(CC) $(filter-out -MMD -MP -fsanitize% -fno-sanitize%,$(CFLAGS_ALL)) -shared -o $@ $<
$(BUILD)/fake/uring/liburing.so.2: tests/fake/uring.c | build/deps.ok
	$(call say,link $@)
	@$(CC) $(filter-out -MMD -MP -fsanitize% -fno-sanitize%,$(CFLAGS_ALL)) -shared -o $@ $<
$(BUILD)/fake/all/libnvidia-ml.so.1: tests/fake/nvml.c | build/deps.ok
	$(call say,link $@)
	@$(CC) $(filter-out -MMD -MP -fsanitize% -fno-sanitize%,$(CFLAGS_ALL)) -shared -o $@ $<
$(BUILD)/fake/%/libcuda.so.1: | build/deps.ok
	$(call say,link $@)
	@echo 'int pl_fake_driver;' | $(CC) -x c -fPIC -shared -o $@ -
