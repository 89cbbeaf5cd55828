# Plimsoll. The two commands of the README are `make demo` and `make test`; `make help` lists all.
#
# Sources are globbed: adding a file touches no build file. A source named X.isa.c is compiled once
# per instruction set (baseline, AVX2, AVX-512) with PL_ISA set to its suffix; callers choose at run
# time. BUILD=dir gives a build of its own; SAN=address,undefined or SAN=thread a sanitized one.

CC      ?= cc
BUILD   ?= build/$(if $(SAN),$(subst $(comma),-,$(SAN)),release)$(if $(filter clang%,$(notdir $(CC))),-clang)
PREFIX  ?= /usr/local
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

LIB_SRC  := $(wildcard src/*/*.c) $(wildcard recipes/*/*.c)
ISA_SRC  := $(filter %.isa.c,$(LIB_SRC))
PLAIN    := $(filter-out %.isa.c,$(LIB_SRC))
CLI_SRC  := $(wildcard cli/*.c)
TEST_SRC := $(wildcard tests/*.c tests/workloads/*.c)
LIB_OBJ  := $(PLAIN:%.c=$(BUILD)/%.o) \
 $(foreach i,base avx2 avx512,$(ISA_SRC:%.isa.c=$(BUILD)/%.$(i).o))
CLI_OBJ  := $(CLI_SRC:%.c=$(BUILD)/%.o)
TEST_OBJ := $(TEST_SRC:%.c=$(BUILD)/%.o)

all: $(BUILD)/plimsoll

$(BUILD)/libplimsoll.a: $(LIB_OBJ)
	@rm -f $@
	@$(AR) rcs $@ $^

$(BUILD)/plimsoll: $(CLI_OBJ) $(BUILD)/libplimsoll.a
	@echo "  link $@"
	@$(CC) $(LSAN) -rdynamic -o $@ $(CLI_OBJ) -Wl,--whole-archive $(BUILD)/libplimsoll.a -Wl,--no-whole-archive $(LIBS)

$(BUILD)/pl_bench $(BUILD)/pl_profile: $(BUILD)/%: $(BUILD)/bench/%.o $(BUILD)/libplimsoll.a
	@echo "  link $@"
	@$(CC) $(LSAN) -rdynamic -o $@ $< -Wl,--whole-archive $(BUILD)/libplimsoll.a -Wl,--no-whole-archive $(LIBS)

$(BUILD)/pl_test: $(TEST_OBJ) $(BUILD)/libplimsoll.a
	@echo "  link $@"
	@$(CC) $(LSAN) -rdynamic -o $@ $(TEST_OBJ) -Wl,--whole-archive $(BUILD)/libplimsoll.a -Wl,--no-whole-archive $(LIBS)

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
	@$(CC) $(CFLAGS_ALL) $(if $(SAN),,$(if $(filter src/cpu/% src/ops/%,$<),$(KERNEL))) -c -o $@ $<

build/deps.ok: tools/deps
	@mkdir -p build && CC="$(CC)" tools/deps && touch $@

deps:
	@tools/deps

# ---- what people type ---------------------------------------------------------------------------
test: all $(BUILD)/pl_test
	@tools/layers
	PL_BIN=$(BUILD)/plimsoll $(BUILD)/pl_test

clean:
	rm -rf build

-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TEST_OBJ:.o=.d)
.PHONY: all deps test clean
