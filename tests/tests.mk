# The test instruments: included by the Makefile, uses its B, V, CC, CFLAGS, LDFLAGS, LIBS.
#   $(B)/tests/origin   a scripted S3 upstream (tests/lib/origin.h tells its script)
#   $(B)/tests/play     runs tests/flow/*.flow against $(B)/headpondd (tests/flow/play.h tells the language)
ORIGIN_C := $(addprefix tests/lib/,origin.c origin_answer.c origin_rules.c origin_script.c origin_list.c origin_sum.c origin_take.c words.c)
PLAY_C   := $(wildcard tests/flow/*.c)

$(B)/tests/origin: $(B)/tests/lib/originctl.o $(ORIGIN_C:%.c=$(B)/%.o) $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
$(B)/tests/play: $(PLAY_C:%.c=$(B)/%.o) $(ORIGIN_C:%.c=$(B)/%.o) $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
instruments: $(B)/tests/origin $(B)/tests/play
# All plays, or PLAYS="tests/flow/10-hit.flow ...", LANES=2 at a time. The last line is "plays: N passed, N failed".
plays: $(B)/headpondd $(B)/tests/play
	@HEADPONDD=$(B)/headpondd tests/flow/plays.sh plays $(B)/tests/play $(or $(PLAYS),$(sort $(wildcard tests/flow/*.flow)))
plays-asan:
	@$(MAKE) --no-print-directory V=asan plays
# The same over TLS, those that show different ways of receiving and sending.
TLS_PLAYS := $(addsuffix *.flow,$(addprefix tests/flow/,10 11 12 13 20 21 22 23 30 31 35 40 51 62 63 64 65))
plays-tls:
	@$(MAKE) --no-print-directory V=asan build/asan/headpondd build/asan/tests/play
	@HEADPONDD=build/asan/headpondd tests/flow/plays.sh plays-tls build/asan/tests/play -t $(wildcard $(TLS_PLAYS))
.PHONY: instruments plays plays-asan plays-tls

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

# Real clients (curl, boto3, aws, openssl) against a listener with TLS.
tls:
	@$(MAKE) --no-print-directory V=release build/release/headpondd
	@/usr/bin/python3 -B tests/tls/tls.py
# Drains with restarts, and reloads, under load, plain and TLS; reloads of many options, each tenth wrong, by SIGHUP and by command,
# under 32 clients. FULL=1: 100 of each.
drain:
	@$(MAKE) --no-print-directory V=release build/release/headpondd build/release/headpond
	@/usr/bin/python3 -B tests/drain/drain.py $(if $(FULL),--drains 100 --reloads 100)
.PHONY: tls drain

# Roles, web identity, processes, containers, instance metadata: credentials that live for seconds under a load (root: a network
# namespace). The last line is "creds: N passed, N failed".
creds:
	@tests/creds/run.sh
.PHONY: creds

# Uploads by real clients, old and current, over HTTP and HTTPS, to three stores; installs them below build/clients. FULL=1: 1 GiB
# as well; WORDS="boto3 rgw" runs some. The last line is "clients: N passed, N failed".
clients:
	@FULL=$(FULL) tests/clients/run.sh $(WORDS)
.PHONY: clients

# Planted secrets are searched in all that the server shows, and those without a right learn nothing.
# The last line is "secrets: N passed, N failed".
secrets:
	@tests/secrets/run.sh
.PHONY: secrets

# Random clients, faults and restarts against one server: STRESS_SECONDS, STRESS_SEED, STRESS=kill.
STRESS_C       := $(wildcard tests/stress/*.c)
STRESS_SECONDS ?= 60
STRESS_SEED    ?= 1
$(B)/tests/stress/stress: $(STRESS_C:%.c=$(B)/%.o) $(ORIGIN_C:%.c=$(B)/%.o) $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
stress:
	@tests/stress/run.sh $(STRESS_SECONDS) $(STRESS_SEED) $(STRESS)
.PHONY: stress

# A whole server in a simulated world (tests/sim/sim.h): one seed, one run.
#   make torture            every scenario with a part of all injections; FULL=1 with all of them
#   make torture SEED=.. SCENARIO=.. INJECT=..     one of them, as the failure told
#   make sim SEED=1 ROUNDS=100                     random clients and faults
#   SLABS=1 with either: large objects in slabs, as release builds have them
SIM_C    := $(wildcard tests/sim/*.c) tests/flow/sigv4.c
SIM_WRAP := clock_gettime getrandom pthread_create pthread_join pthread_cond_wait pthread_cond_timedwait pthread_cond_signal \
            pthread_cond_broadcast socket bind listen accept4 getsockname getpeername setsockopt shutdown dup3 eventfd fcntl \
            close read write recv send poll ppoll fallocate stock_init xmlGetGlobalState
SEED     ?= 1
$(B)/tests/sim/sim: $(SIM_C:%.c=$(B)/%.o) $(filter-out $(B)/tests/lib/originctl.o,$(ORIGIN_C:%.c=$(B)/%.o)) \
                    $(B)/libserver.a $(B)/libcommon.a
	@$(CC) $(LDFLAGS) $(SIM_WRAP:%=-Wl,--wrap=%) -o $@ $(filter %.o,$^) \
	    -Wl,--start-group $(B)/libserver.a $(B)/libcommon.a -Wl,--end-group $(LIBS)
torture:
	@$(MAKE) --no-print-directory V=asan build/asan/tests/sim/sim
	@tests/sim/run.sh torture $(SEED) "$(SCENARIO)" "$(INJECT)" "$(FULL)"
sim:
	@$(MAKE) --no-print-directory V=asan build/asan/tests/sim/sim
	@tests/sim/run.sh random $(SEED) $(or $(ROUNDS),100)
.PHONY: torture sim

# Servers that are killed, lose power, find their files damaged or full (root: namespaces, loop devices).
#   make crash PART=kill ROUNDS=300 SEED=7      one part: kill power damage start full
#   make crash                                  some rounds of each, as in make check: the dice of SEED=1
CRASH_C := $(wildcard tests/crash/*.c)
$(B)/tests/crash/crash: $(CRASH_C:%.c=$(B)/%.o) $(ORIGIN_C:%.c=$(B)/%.o) $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
crash: $(B)/headpondd $(B)/tests/crash/crash
	@HEADPONDD=$(abspath $(B)/headpondd) tests/crash/run.sh $(B)/tests/crash/crash
.PHONY: crash

# Thousands of small objects, twice: how much faster from the cache, and what room they take. FULL=1: 200,000 of each mix of sizes, and
# the ratios that are promised; MIXES="uniform" runs one. The last line is "small: N passed, N failed".
small:
	@$(MAKE) --no-print-directory V=release build/release/headpondd build/release/tests/origin build/release/tests/swarm
	@FULL=$(FULL) tests/small/small.py $(MIXES)
.PHONY: small

# Never older than acknowledged: readers and writers of the same keys, a store that keeps what is written, kill -9. FULL=1: 10,000
# operations and 50 kills; SEED=N does the same again; PARTS="through around behind" runs some.
rounds:
	@$(MAKE) --no-print-directory V=$(V) build/$(V)/headpondd
	@/usr/bin/python3 -B tests/rounds/rounds.py --program build/$(V)/headpondd --seed $(SEED) $(if $(FULL),--rounds 10000 --kills 50) $(PARTS)
.PHONY: rounds

# Prewarm jobs: killed thrice, with a failing request in a hundred, keys that are missing, what does not fit. FULL=1: 20,000 objects.
# The last line is "prewarm: N passed, N failed".
prewarm:
	@$(MAKE) --no-print-directory V=$(V) all build/$(V)/tests/origin
	@FULL=$(FULL) B=build/$(V) /usr/bin/python3 -B tests/prewarm/prewarm.py
.PHONY: prewarm

# The upstream unplugged under a running epoch, in network namespaces of its own. FULL=1: p99 within 10 %.
down:
	@FULL=$(FULL) tests/down/run.sh
.PHONY: down

# Everything that an upstream can do wrong (root: network namespaces). FULL=1: all cut points, and the sanitised server.
faults:
	@tests/faults/run.sh
faults-one: all instruments
	@python3 -B tests/faults/matrix.py "$(CELL)"
.PHONY: faults faults-one

# Training epochs through a cache of 80 % of their data, beside nginx (LRU) and Belady's MIN. FULL=1: scans, changes of the data and
# ranges of 1 MiB as well; PARTS="shards samples" runs some. The last line is "epochs: N passed, N failed".
epochs:
	@$(MAKE) --no-print-directory V=release build/release/headpondd build/release/bench/store
	@tests/lib/packages.sh nginx-light
	@/usr/bin/python3 -B tests/epochs/epochs.py $(if $(FULL),--full) $(PARTS)
.PHONY: epochs

# What clients may cost: stalled, idle, dripping ones, descriptors, addresses, small memory, uploads (put). FULL=1: the promises' numbers;
# PARTS="stalled idle" runs some. Needs root for a network namespace. The last line is "limits: N passed, N failed".
$(B)/tests/crowd: $(B)/tests/limits/crowd.o $(B)/tests/lib/words.o $(B)/libcommon.a
	$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libcommon.a $(LIBS)
instruments: $(B)/tests/crowd
limits: $(B)/headpondd $(B)/headpond $(B)/tests/crowd $(B)/tests/origin $(B)/tests/swarm $(B)/bench/push
	@B=$(B) FULL=$(FULL) tests/limits/limits.py $(PARTS)
.PHONY: limits

# A hundred thousand changed requests and as many changed bodies of signed chunks, counted: FORGE_SEED=N for others. Also in `unit`.
forge: $(B)/tests/unit/test_forgery
	@FORGE_SEED=$(FORGE_SEED) $(B)/tests/unit/test_forgery
.PHONY: forge

# What status --sizing says of other sizes of the cache, against servers of those sizes. FULL=1: longer, more sizes, a mix, lru.
# The last line is "sizing: N passed, N failed".
sizing:
	@$(MAKE) --no-print-directory V=release build/release/headpondd build/release/headpond build/release/tests/origin
	@FULL=$(FULL) /usr/bin/python3 -B tests/sizing/sizing.py
.PHONY: sizing

# Disks that fail, freeze, lie and come back under readers: one cache directory lies on tests/fuse/faultfs.c (root; a mount
# namespace of its own). WORDS="frozen pulled" runs some, FULL=1 all. The last line is "disks: N passed, N failed".
$(B)/tests/faultfs: tests/fuse/faultfs.c $(B)/libcommon.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $$(pkg-config --cflags fuse3 | sed 's/-I/-isystem /') $(LDFLAGS) -o $@ $< $(B)/libcommon.a $(LIBS) -lfuse3
disks:
	@FULL=$(FULL) tests/fuse/run.sh $(WORDS)
.PHONY: disks

# What lies in conf/, by the tools that will read it (systemd-analyze, promtool, haproxy), and in use: system call filters, two servers
# behind the balancer. WORDS="alert dashboard" runs some. The last line is "conf-check: N passed, N failed".
conf-check:
	@tests/lib/packages.sh haproxy prometheus systemd libseccomp2 python3-yaml curl zsh fish mandoc groff man-db
	@$(MAKE) --no-print-directory V=release all man completions
	@/usr/bin/python3 -B tests/conf/conf.py $(WORDS)
.PHONY: conf-check

# The plans of conf/clients against what WebDataset, PyTorch and MosaicML Streaming then read, exact for each worker; installs them
# (build/shims). WebDataset and the server's three doors; FULL=1: the others as well; WORDS="sampler resumed" runs some. The last
# line is "shims: N passed, N failed".
shims:
	@tests/shims/run.sh $(or $(WORDS),$(if $(FULL),,doors headpond webdataset))
.PHONY: shims
