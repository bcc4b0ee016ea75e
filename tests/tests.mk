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
.PHONY: instruments plays plays-asan

# For tests/rgw, the proof against a real S3 server:
#   $(B)/tests/proxy    counts what passes between the server and its upstream
#   $(B)/tests/swarm    many clients that check every byte of synthetic objects
PROXY_C := tests/lib/proxy.c
SWARM_C := tests/lib/swarm.c tests/lib/words.c
$(B)/tests/proxy: $(PROXY_C:%.c=$(B)/%.o) $(B)/libcommon.a
$(B)/tests/swarm: $(SWARM_C:%.c=$(B)/%.o) $(B)/libcommon.a
$(B)/tests/proxy $(B)/tests/swarm:
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
instruments: $(B)/tests/proxy $(B)/tests/swarm
# Ceph RGW as the upstream, real clients, every byte compared. PARTS="bytes crowd" runs some. Last line: "rgw: N passed, N failed".
rgw:
	@tests/rgw/run.sh $(PARTS)
# 20 GiB through the cache by 200 clients.
soak:
	@RGW_FULL=1 tests/rgw/run.sh soak
.PHONY: rgw soak

# Random clients, faults and restarts against one server: STRESS_SECONDS, STRESS_SEED, STRESS=kill.
STRESS_C       := $(wildcard tests/stress/*.c)
STRESS_SECONDS ?= 60
STRESS_SEED    ?= 1
$(B)/tests/stress/stress: $(STRESS_C:%.c=$(B)/%.o) $(ORIGIN_C:%.c=$(B)/%.o) $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
stress:
	@tests/stress/run.sh $(STRESS_SECONDS) $(STRESS_SEED) $(STRESS)
.PHONY: stress

# What clients may cost: stalled, idle, dripping ones, descriptors, addresses, small memory. FULL=1: the numbers of the promises;
# PARTS="stalled idle" runs some. Needs root for a network namespace. The last line is "limits: N passed, N failed".
$(B)/tests/crowd: $(B)/tests/limits/crowd.o $(B)/tests/lib/words.o $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
instruments: $(B)/tests/crowd
limits: $(B)/headpondd $(B)/tests/crowd $(B)/tests/origin $(B)/tests/swarm
	@B=$(B) FULL=$(FULL) tests/limits/limits.py $(PARTS)
.PHONY: limits
