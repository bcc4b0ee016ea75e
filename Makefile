# headpond: build, test, run, bench, install. No generated build system.
#   make            headpondd and headpond, optimised
#   make run        install what is missing, build, serve a sample bucket on loopback (UPSTREAM=URL for a real S3)
#   make check      every test, with AddressSanitizer and UndefinedBehaviorSanitizer as well
#   V=asan|release|cover  chooses a build; each has its own folder below build/

V       ?= release
B       := build/$(V)
CC      ?= gcc
PREFIX  ?= /usr/local
SHELL   := /bin/bash

REVISION := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
LIBURING := $(shell pkg-config --modversion liburing 2>/dev/null || echo unknown)
WARN    := -Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow -Wvla -Wmissing-prototypes -Wstrict-prototypes \
           -Wformat=2 -Wimplicit-fallthrough -Werror
HARDEN  := -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fstack-clash-protection -fcf-protection=full -fPIE
DEFS    := -D_GNU_SOURCE -DHEADPOND_PREFIX='"$(PREFIX)"' -Iinclude -I. -I/usr/include/libxml2
CFLAGS_release := -O2 -g $(HARDEN)
CFLAGS_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -DHEADPOND_ASAN
CFLAGS_cover   := -O0 -g --coverage -fprofile-update=atomic -include tests/coverage/count.h
LDFLAGS_release := -pie -Wl,-z,relro,-z,now,-z,noexecstack
LDFLAGS_asan    := -fsanitize=address,undefined
LDFLAGS_cover   := --coverage
CFLAGS  := -std=gnu17 $(WARN) $(CFLAGS_$(V)) $(DEFS) $(EXTRA_CFLAGS)
LDFLAGS := $(LDFLAGS_$(V))
LIBS    := -luring -lmicrohttpd -lssl -lcrypto -lxml2 -llmdb -ljansson -lisal -lpthread -lm

COMMON_C := $(wildcard common/*.c)
CTL_C    := $(wildcard server/ctl/*.c)
SERVER_C := $(filter-out server/main.c,$(wildcard server/*.c)) \
            $(wildcard $(foreach d,loop policy net cache origin fill s3 jobs admin,server/$(d)/*.c))
UNIT_C   := $(wildcard tests/unit/test_*.c)
UNITS    := $(UNIT_C:%.c=$(B)/%)

all: $(B)/headpondd $(B)/headpond headpondd headpond
headpondd headpond: %: $(B)/%
	@ln -sf $(B)/$@ $@

$(B)/server/main.o: CFLAGS += -DHEADPOND_REVISION='"$(REVISION)"' -DHEADPOND_LIBURING='"$(LIBURING)"'
# Where `make install` puts what messages name; another PREFIX is compiled anew.
.PHONY: FORCE
$(B)/prefix: FORCE
	@mkdir -p $(@D); echo '$(PREFIX)' | cmp -s - $@ || echo '$(PREFIX)' >$@
$(B)/server/ctl/kernel.o $(B)/server/loop/ring.o: $(B)/prefix
$(B)/%.o: %.c
	@mkdir -p $(@D)
	@echo "CC $@"
	@$(CC) $(CFLAGS) -MMD -MP -c $< -o $@
# Its style and script are files of their own, put in as they are.
$(B)/server/admin/page.o $(B)/tests/unit/test_page.o: server/admin/page.css server/admin/page.js
$(B)/libcommon.a: $(COMMON_C:%.c=$(B)/%.o)
	@rm -f $@; ar rcs $@ $^
$(B)/libserver.a: $(SERVER_C:%.c=$(B)/%.o)
	@rm -f $@; ar rcs $@ $^
$(B)/headpondd: $(B)/server/main.o $(B)/libserver.a $(B)/libcommon.a
	@$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(B)/libserver.a $(B)/libcommon.a -Wl,--end-group $(LIBS)
$(B)/headpond: $(CTL_C:%.c=$(B)/%.o) $(B)/libcommon.a
	@$(CC) $(LDFLAGS) -o $@ $(CTL_C:%.c=$(B)/%.o) $(B)/libcommon.a $(LIBS)

# A unit test includes its .c; everything else comes from the archives.
$(B)/tests/unit/%: $(B)/tests/unit/%.o $(B)/libserver.a $(B)/libcommon.a
	@$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(B)/libserver.a $(B)/libcommon.a -Wl,--end-group $(LIBS) -lcmocka
unit: $(UNITS)
	@tests/unit/run.sh $(UNITS)

clean:
	rm -rf build headpondd headpond
-include $(shell find $(B) -name '*.d' 2>/dev/null)
.PHONY: all unit clean
.SECONDARY:

# ---- packages (Debian 12) ----
BUILD_PACKAGES := build-essential pkg-config liburing-dev libmicrohttpd-dev libssl-dev libxml2-dev liblmdb-dev \
                  libjansson-dev libisal-dev libxxhash-dev
TEST_PACKAGES  := libcmocka-dev libfuse3-dev clang llvm libclang-rt-14-dev curl strace procps iproute2 e2fsprogs xz-utils python3 python3-boto3 python3-venv awscli rclone s3cmd \
                  nginx-light prometheus haproxy systemd libseccomp2 python3-yaml zsh fish mandoc groff man-db universal-ctags gcovr clang-tidy cppcheck radosgw ceph-mon ceph-osd ceph-common ca-certificates
deps:
	@tests/lib/packages.sh $(BUILD_PACKAGES)
test-deps: deps
	@tests/lib/packages.sh $(TEST_PACKAGES)

# ---- run ----
# A sample bucket over file://, or UPSTREAM=https://... with your AWS credentials. Stop it with: make stop
RUN_DIR ?= /var/tmp/headpond-$(shell id -u)
run: deps
	@$(MAKE) --no-print-directory all
	@RUN_DIR=$(RUN_DIR) UPSTREAM=$(UPSTREAM) conf/try.sh start
stop:
	@RUN_DIR=$(RUN_DIR) conf/try.sh stop

# ---- tests ----
-include tests/tests.mk
-include tests/fuzz/fuzz.mk
-include bench/bench.mk
CHECK_PARTS := tidy unit-release unit-asan policy corpus differential torture plays plays-asan plays-tls tls drain faults down limits creds secrets crash disks rounds small prewarm admin conf-check rgw clients shims
check: test-deps
	@MAKE="$(MAKE)" tests/check.sh $(CHECK_PARTS)
unit-release:
	@$(MAKE) --no-print-directory V=release unit
unit-asan:
	@$(MAKE) --no-print-directory V=asan unit
tidy:
	@tests/tidy/tidy.sh
admin:
	@$(MAKE) --no-print-directory V=release all build/release/tests/origin
	@tests/admin/admin.sh
# A fresh Debian 12, a stranger, make run (and make check: BARE=check). Slow, needs root and the network; not part of make check.
bare:
	@tests/bare/bare.sh $(BARE)

# Manual pages and completion scripts, made from the tables of the programs.
PAGES := headpond.1 headpondd.8 headpond.toml.5
man: $(PAGES:%=$(B)/man/%)
$(PAGES:%=$(B)/man/%): $(B)/headpond
	@mkdir -p $(@D)
	@$(B)/headpond man $(basename $(@F)) > $@
completions: $(B)/completion/headpond.bash $(B)/completion/headpond.zsh $(B)/completion/headpond.fish
$(B)/completion/headpond.%: $(B)/headpond
	@mkdir -p $(@D)
	@$(B)/headpond completion $* > $@

# ---- bench, install ----
# All of the hit and miss figures, or BENCH=put: uploads, BENCH=index: a start with an index of 10 M chunks (needs root),
# BENCH=hit: what a hit allocates, and how often it calls the kernel (needs root and linux-perf), BENCH=micro: hot functions,
# BENCH=epoch: do loader workers wait (FULL=1: 24 GB, ten minutes), BENCH=warm: readers beside a prewarm, a prewarm beside aws (FULL=1: 95 GB over loopback).
bench: test-deps
	@$(MAKE) --no-print-directory V=release all instruments
	@case "$(BENCH)" in \
	    '') bench/run.sh ;; \
	    micro) bench/micro.sh ;; \
	    put|hit|index|epoch|warm) /usr/bin/python3 -B bench/$(BENCH).py ;; \
	    *) echo 'make bench: there is no BENCH=$(BENCH); there are: put hit index epoch warm micro' >&2; exit 2 ;; \
	esac
install: all man completions
	install -Dm755 $(B)/headpondd $(DESTDIR)$(PREFIX)/bin/headpondd
	install -Dm755 $(B)/headpond $(DESTDIR)$(PREFIX)/bin/headpond
	install -Dm644 conf/headpond.toml $(DESTDIR)/etc/headpond/headpond.toml.sample
	install -Dm644 conf/headpond.service $(DESTDIR)/etc/systemd/system/headpond.service
	sed -i 's|/usr/local/bin/|$(PREFIX)/bin/|g' $(DESTDIR)/etc/systemd/system/headpond.service
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $(B)/man/headpond.1
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/man/man8 $(B)/man/headpondd.8
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/man/man5 $(B)/man/headpond.toml.5
	install -Dm644 $(B)/completion/headpond.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/headpond
	install -Dm644 $(B)/completion/headpond.zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_headpond
	install -Dm644 $(B)/completion/headpond.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/headpond.fish
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/headpond conf/seccomp.json conf/haproxy.cfg conf/alerts.yml conf/grafana.json
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/headpond/clients $(wildcard conf/clients/*.py)
.PHONY: man completions admin deps test-deps run stop check unit-release unit-asan tidy bare bench install
