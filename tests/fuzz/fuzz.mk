# Fuzzing, coverage, static analysis: included by the Makefile.
#   make corpus      replays what is kept of each fuzzer in tests/fuzz/corpus (part of make check)
#   make fuzz        searches, FUZZ_SECONDS each (FUZZ="request xml" chooses); keeps what fails in build/fuzz/crashes, says how to
#                    replay it, and replays it itself the next time

# ---- fuzzers (clang) ----
# A target includes its .c, as a unit test does; everything else comes from archives built for fuzzing.
F       := build/fuzz
FUZZ_C  := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ    ?= $(patsubst tests/fuzz/fuzz_%.c,%,$(FUZZ_C))
FUZZERS := $(FUZZ:%=$(F)/tests/fuzz/fuzz_%)
FUZZ_SECONDS ?= 60
CLANG   ?= $(if $(findstring ccache,$(CC)),ccache) clang
FUZZ_FLAGS := -std=gnu17 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer $(DEFS)

$(F)/tests/%.o: tests/%.c
	@mkdir -p $(@D)
	@$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer -MMD -MP -c $< -o $@
$(F)/%.o: %.c
	@mkdir -p $(@D)
	@$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -MMD -MP -c $< -o $@
$(F)/lib.a: $(COMMON_C:%.c=$(F)/%.o) $(SERVER_C:%.c=$(F)/%.o) $(patsubst %.c,$(F)/%.o,$(filter-out server/ctl/main.c,$(CTL_C)))
	@rm -f $@; ar rcs $@ $^
$(FUZZERS): %: %.o $(F)/lib.a
	@echo "FUZZ $@"
	@$(CLANG) -fsanitize=fuzzer,address,undefined -o $@ $< $(F)/lib.a $(LIBS)
fuzz: test-deps $(FUZZERS)
	@tests/fuzz/run.sh fuzz $(FUZZ_SECONDS) $(FUZZERS)
corpus: $(FUZZERS)
	@tests/fuzz/run.sh corpus 0 $(FUZZERS)
-include $(shell find $(F) -name '*.d' 2>/dev/null)
.PHONY: fuzz corpus

# ---- framing: our parsers against a model of RFC 9112 in Python, and through a real socket ----
#   make differential COUNT=1000000 SEED=7; CASE="limits 17" shows one stream and what both say of it
COUNT ?= 50000
SEED  ?= 1
$(B)/tests/differential/harness: $(B)/tests/differential/harness.o $(B)/libcommon.a
	@$(CC) $(LDFLAGS) -o $@ $< $(B)/libcommon.a $(LIBS)
differential: $(B)/tests/differential/harness $(B)/headpondd
	@python3 -B tests/differential/differential.py $(B)/tests/differential/harness $(B)/headpondd $(COUNT) $(SEED) $(CASE)
.PHONY: differential

# ---- coverage (gcov); the corpora are replayed by gcc's build of the targets ----
REPLAYS := $(FUZZ_C:%.c=$(B)/%)
$(REPLAYS): %: %.o $(B)/tests/fuzz/replay.o $(B)/libserver.a $(B)/libcommon.a $(patsubst %.c,$(B)/%.o,$(filter-out server/ctl/main.c,$(CTL_C)))
	@rm -f $@.a; ar rcs $@.a $(filter $(B)/server/ctl/%,$^)
	@$(CC) $(LDFLAGS) -o $@ $< $(B)/tests/fuzz/replay.o -Wl,--start-group $@.a $(B)/libserver.a $(B)/libcommon.a -Wl,--end-group $(LIBS)
replay: $(REPLAYS)
	@tests/fuzz/run.sh corpus 0 $(REPLAYS)
coverage: test-deps
	@MAKE="$(MAKE)" tests/coverage/coverage.sh
.PHONY: replay coverage

# ---- static analysis: gcc -fanalyzer, clang-tidy (tests/tidy/clang-tidy.yml), cppcheck, clang as the compiler ----
# gcc's analyzer follows allocations by given_by (include/base.h). What it cannot know is excused here:
#   leaks            it loses what moves into lists, counts or the kernel; LeakSanitizer looks for them, and make torture
#                    refuses each allocation in turn
#   common/mem.c     makes the pairs themselves, out of malloc and free
#   index_chunks.c   chunks are counted: who drops a hold has one of its own left, or does not touch the chunk again
A         := build/analyze
ANALYZER  := -O1 -Wall -Wextra -fanalyzer -Werror -Wno-analyzer-malloc-leak
$(A)/common/mem.gcc: ANALYZER += -Wno-analyzer-mismatching-deallocation
$(A)/server/cache/index_chunks.gcc: ANALYZER += -Wno-analyzer-use-after-free
LINTED_C  := $(COMMON_C) $(SERVER_C) server/main.c $(CTL_C)
LINTED_H  := $(wildcard include/*.h include/table/*.h server/*.h server/*/*.h)
LINT_DEFS := -std=gnu17 $(DEFS) -DHEADPOND_REVISION='"x"' -DHEADPOND_LIBURING='"x"'
LINTS     := $(foreach tool,gcc clang tidy,$(LINTED_C:%.c=$(A)/%.$(tool))) $(A)/cppcheck $(A)/canary
LINT_gcc      = $(CC) $(ANALYZER) $(LINT_DEFS)
LINT_clang    = $(CLANG) -O2 $(WARN) $(LINT_DEFS)
LINT_tidy     = clang-tidy --quiet --config-file=tests/tidy/clang-tidy.yml
LINT_cppcheck = cppcheck --quiet --enable=warning,portability,performance --inline-suppr --std=c11 --error-exitcode=1 \
                --suppress=missingIncludeSystem -Iinclude -I. -D_GNU_SOURCE -D__linux__ --template='{file}:{line}: {id}: {message}'
$(A)/%.gcc: %.c $(LINTED_H)
	@mkdir -p $(@D); rm -f $@
	@$(LINT_gcc) -c $< -o $@.o >$@.log 2>&1 && touch $@
$(A)/%.clang: %.c $(LINTED_H)
	@mkdir -p $(@D); rm -f $@
	@$(LINT_clang) -c $< -o $@.o >$@.log 2>&1 && touch $@
$(A)/%.tidy: %.c $(LINTED_H) tests/tidy/clang-tidy.yml
	@mkdir -p $(@D); rm -f $@
	@$(LINT_tidy) $< -- -Wall $(LINT_DEFS) >$@.log 2>&1 && touch $@
$(A)/cppcheck: $(LINTED_C) $(LINTED_H)
	@mkdir -p $(@D); rm -f $@
	@$(LINT_cppcheck) common server >$@.log 2>&1 && touch $@
# A file full of mistakes: a tool that finds not all of its own is set up wrongly.
$(A)/canary: tests/tidy/analyze.c.txt $(LINTED_H) tests/tidy/clang-tidy.yml
	@mkdir -p $(@D); rm -f $@; cp $< $@.c
	@$(LINT_gcc) -c $@.c -o $@.o >$@.gcc 2>&1 || :
	@$(LINT_clang) -c $@.c -o $@.o >$@.clang 2>&1 || :
	@$(LINT_tidy) $@.c -- -Wall $(LINT_DEFS) >$@.tidy 2>&1 || :
	@$(LINT_cppcheck) $@.c >$@.cppcheck 2>&1 || :
	@tests/tidy/analyze.sh canary $@ >$@.log && touch $@
analyze: test-deps
	-@$(MAKE) --no-print-directory -k $(LINTS) >/dev/null 2>&1
	@tests/tidy/analyze.sh add $(A) $(LINTS)
.PHONY: analyze
