# The bench's instruments: included by the Makefile, uses its B, CC, CFLAGS, LDFLAGS, LIBS.
#   $(B)/bench/load    HTTP client: closed or open loop, one line of key=value
#   $(B)/bench/store   the remote store of the rows: plain files, at once or far away
#   $(B)/bench/epoch   loader workers that use bytes at a fixed rate
#   $(B)/bench/push    a client that uploads
#   $(B)/bench/touch   makes a virtual machine's host back memory before it is measured
#   $(B)/bench/sparse  runs a program on a slab of holes
#   $(B)/bench/micro/* ns and allocations per call of hot functions
MICRO_C := $(wildcard bench/micro/*.c)
BENCHES := $(addprefix $(B)/bench/,load push store epoch touch sparse) $(MICRO_C:%.c=$(B)/%)

$(B)/bench/load: $(B)/bench/load.o $(B)/bench/ask.o $(B)/bench/secure.o $(B)/bench/hist.o $(B)/tests/lib/words.o $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
$(B)/bench/push: $(B)/bench/push.o $(B)/bench/hist.o $(B)/tests/lib/words.o $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
$(B)/bench/store: $(B)/bench/store.o $(B)/tests/lib/words.o $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
$(B)/bench/epoch: $(B)/bench/epoch.o $(B)/tests/lib/words.o $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
$(B)/bench/touch: $(B)/bench/touch.o
	$(CC) $(LDFLAGS) -o $@ $<
$(B)/bench/sparse: $(B)/bench/sparse.o
	$(CC) $(LDFLAGS) -o $@ $<
$(B)/bench/micro/%: $(B)/bench/micro/%.o $(B)/libserver.a $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(B)/libserver.a $(B)/libcommon.a -Wl,--end-group $(LIBS)
# Eviction policies on traces of training reads, in virtual time (bench/policy/main.c tells its options).
#   $(B)/bench/policy/policy   the server's own policy functions, others beside them, and Belady's MIN
POLICY_C := $(wildcard bench/policy/*.c)
BENCHES  += $(B)/bench/policy/policy
$(B)/bench/policy/policy: $(POLICY_C:%.c=$(B)/%.o) $(B)/libserver.a $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(B)/libserver.a $(B)/libcommon.a -Wl,--end-group $(LIBS)
# The last line is "bench-policy: N passed, N failed". TRACE=b_shuf SIZE=.25 RIVALS=1 PLANS=1 SIZING=1 CSV=FILE choose.
bench-policy:
	@$(MAKE) --no-print-directory V=release build/release/bench/policy/policy
	@build/release/bench/policy/policy $(if $(TRACE),-t $(TRACE)) $(if $(SIZE),-f $(SIZE)) $(if $(RIVALS),-r) $(if $(PLANS),-p) $(if $(SIZING),-s) $(if $(CSV),-c $(CSV))
# One size of it, for make check, where time is no verdict; all that measures is built, so that it is there when it is wanted.
policy:
	@$(MAKE) --no-print-directory V=release benches
	@set -o pipefail; build/release/bench/policy/policy -u -f .25 | sed 's/^bench-policy:/policy:/'
benches: $(BENCHES)
# Whom bench/run.sh compares with. nginx and curl are among TEST_PACKAGES; the other benches need none of these.
BENCH_PACKAGES := nginx-light varnish trafficserver trafficserver-experimental-plugins haproxy
bench-deps: test-deps
	@$(if $(BENCH),,tests/lib/packages.sh $(BENCH_PACKAGES))
bench: $(BENCHES) bench-deps
.PHONY: benches bench-deps bench-policy policy
