# The test instruments: included by the Makefile, uses its B, V, CC, CFLAGS, LDFLAGS, LIBS.
#   $(B)/tests/origin   a scripted S3 upstream (tests/lib/origin.h tells its script)
#   $(B)/tests/play     runs tests/flow/*.flow against $(B)/headpondd (tests/flow/play.h tells the language)
ORIGIN_C := $(addprefix tests/lib/,origin.c origin_answer.c origin_rules.c origin_script.c origin_list.c words.c)
PLAY_C   := $(wildcard tests/flow/*.c)

$(B)/tests/origin: $(B)/tests/lib/originctl.o $(ORIGIN_C:%.c=$(B)/%.o) $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
$(B)/tests/play: $(PLAY_C:%.c=$(B)/%.o) $(ORIGIN_C:%.c=$(B)/%.o) $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
instruments: $(B)/tests/origin $(B)/tests/play
# All plays, or PLAYS="tests/flow/10-hit.flow ...". The last line is "plays: N passed, N failed".
plays: $(B)/headpondd $(B)/tests/play
	@HEADPONDD=$(B)/headpondd $(B)/tests/play $(or $(PLAYS),$(sort $(wildcard tests/flow/*.flow)))
plays-asan:
	@$(MAKE) --no-print-directory V=asan plays

# Random clients, faults and restarts against one server: STRESS_SECONDS, STRESS_SEED, STRESS=kill.
STRESS_C       := $(wildcard tests/stress/*.c)
STRESS_SECONDS ?= 60
STRESS_SEED    ?= 1
$(B)/tests/stress/stress: $(STRESS_C:%.c=$(B)/%.o) $(ORIGIN_C:%.c=$(B)/%.o) $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
stress:
	@tests/stress/run.sh $(STRESS_SECONDS) $(STRESS_SEED) $(STRESS)
.PHONY: instruments plays plays-asan stress
