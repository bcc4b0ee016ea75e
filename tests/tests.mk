# The test instruments: included by the Makefile, uses its B, CC, CFLAGS, LDFLAGS, LIBS.
#   $(B)/tests/origin   a scripted S3 upstream (tests/lib/origin.h tells its script)
#   $(B)/tests/play     runs tests/flow/*.flow against $(B)/headpondd (tests/flow/play.h tells the language)
ORIGIN_C := $(addprefix tests/lib/,origin.c origin_answer.c origin_rules.c origin_script.c origin_list.c words.c)
PLAY_C   := $(wildcard tests/flow/*.c)

$(B)/tests/origin: $(B)/tests/lib/originctl.o $(ORIGIN_C:%.c=$(B)/%.o) $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
$(B)/tests/play: $(PLAY_C:%.c=$(B)/%.o) $(ORIGIN_C:%.c=$(B)/%.o) $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
instruments: $(B)/tests/origin $(B)/tests/play
# PLAYS=tests/flow/10-hit.flow runs one.
flow: $(B)/headpondd $(B)/tests/play
	HEADPONDD=$${HEADPONDD:-$(B)/headpondd} $(B)/tests/play $(or $(PLAYS),$(sort $(wildcard tests/flow/*.flow)))
.PHONY: instruments flow

# For tests/rgw, the proof against a real S3 server:
#   $(B)/tests/proxy    counts what passes between the server and its upstream
#   $(B)/tests/swarm    many clients that check every byte of synthetic objects
$(B)/tests/proxy $(B)/tests/swarm: $(B)/tests/%: $(B)/tests/lib/%.o $(B)/tests/lib/words.o $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
instruments: $(B)/tests/proxy $(B)/tests/swarm
