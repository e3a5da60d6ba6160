# Muster's commands: `make` lists them. Everything that is installed stays in .venv, .cache and the machine's build cache
# (MUSTER_CACHE, by default ~/.cache/muster: what takes minutes to build is kept there and shared by all clones).
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.synced
PYTHON ?= python3
# uv of the machine when it has one that runs, otherwise one of our own from PyPI
UV := $(shell uv --version >/dev/null 2>&1 && command -v uv || echo .cache/uv/bin/uv)
DOCS := .cache/docs
BROWSER := .cache/browser
CLUSTER := hack/localkube/cluster

.PHONY: help
help: ## list the commands
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' Makefile

##@ Use
.PHONY: demo
demo: $(STAMP) ## the main job on this machine: local cluster, real clients, kill the leader, see what happened
	@$(BIN)/muster demo

.PHONY: demo-adopt
demo-adopt: $(STAMP) ## a Kafka cluster gets Muster in front of it: mirror, gateway, a pod killed, a live group moved and back (Java 17, Maven; 2 minutes)
	@$(BIN)/python -m tests.support.adopt_demo

.PHONY: pipeline-demo
pipeline-demo: $(STAMP) ## real commits, tables, report, re-sharding 50 -> 12 -> 50, Muster on the result (Java 17; 2 to 3 minutes)
	@$(BIN)/python hack/pipeline_demo.py

##@ Check
.PHONY: test
test: $(STAMP) ## everything that can run here; says what it skipped and what would enable it
	@$(BIN)/python hack/run_tests.py

.PHONY: test-fast
test-fast: $(STAMP) ## unit and golden tests, but for those marked as long (under a minute)
	@$(BIN)/python hack/run_tests.py --only fast

.PHONY: test-browser
test-browser: $(STAMP) $(BROWSER)/.synced ## the pages of `muster ui` in a headless Chromium, with axe (Chromium; a minute)
	@$(BIN)/python hack/run_tests.py --only browser

.PHONY: test-kubernetes
test-kubernetes: $(STAMP) ## the tests on a real Kubernetes (hack/localkube, or kind where Docker is)
	@$(BIN)/python hack/run_tests.py --only kubernetes

.PHONY: test-alerts
test-alerts: $(STAMP) ## each alert fires on its fault and goes out, runbooks are run: real Kubernetes, real Prometheus, real Kafka (10 minutes)
	@$(BIN)/python hack/run_tests.py --only alerts

.PHONY: test-kubernetes-nodes
test-kubernetes-nodes: $(STAMP) ## a node of three is lost, cut off, drained (hack/localkube)
	@$(BIN)/python hack/run_tests.py --only kubernetes-nodes

.PHONY: test-kubernetes-versions
test-kubernetes-versions: $(STAMP) ## the same objects, `kubectl muster` and its roles on older Kubernetes: 1.32 and 1.33 (hack/localkube; compiles both the first time)
	@$(BIN)/python hack/run_tests.py --only kubernetes-versions

.PHONY: test-kubernetes-long
test-kubernetes-long: $(STAMP) ## operators killed 20 times, and in 20 moves of a live group; 11 minutes in which nothing may be written (35 minutes)
	@$(BIN)/python hack/run_tests.py --only kubernetes-long

.PHONY: test-olm
test-olm: $(STAMP) ## the bundle installed and removed by the Operator Lifecycle Manager on a real Kubernetes (compiles OLM the first time)
	@$(BIN)/python hack/run_tests.py --only olm

.PHONY: test-pipeline-kubernetes
test-pipeline-kubernetes: $(STAMP) ## the pipeline's CronJob and executors on a real Kubernetes; builds its image (some minutes)
	@$(BIN)/python hack/run_tests.py --only pipeline-kubernetes

.PHONY: conformance
conformance: $(STAMP) ## the same requests to Muster and to a real Kafka, KAFKA=4.3.1: every difference of the answers (Java 17, Maven)
	@$(BIN)/python -m tests.conformance $(if $(KAFKA),--kafka $(KAFKA))

SEEDS ?= 200
.PHONY: simulate
simulate: $(STAMP) ## the replication protocol under simulated faults: SEEDS=n from FIRST=k on (ONLY=transactions, operators, consumers or mixed), or SEED=k again with its trace
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(if $(FIRST),--first $(FIRST)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(WITH),--with "$(WITH)") $(if $(FAULT),--fault "$(FAULT)") $(if $(ONLY),--only $(ONLY))

.PHONY: simulate-faults
simulate-faults: $(STAMP) ## the first seed of `make simulate` that catches each planted fault: all of them, or FAULT="no seal"
	@$(BIN)/python -m tests.simulation.faults $(if $(FAULT),"$(FAULT)")

.PHONY: chaos
chaos: $(STAMP) ## real processes under faults and a checked load: SCENARIO="kill freeze", SECONDS=12 each, SEED=k
	@hack/compiled run $(BIN)/python -m tests.chaos $(SCENARIO) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

.PHONY: attack
attack: $(STAMP) ## hostile clients beside 64 members, one after the other: ATTACK="idle crowd", SECONDS=2 each; all of them: docs/attacks.md is written
	@hack/compiled run $(BIN)/python -m tests.attacks $(if $(ATTACK),$(ATTACK),--document) $(if $(SECONDS),--seconds $(SECONDS))

.PHONY: kill-transactions
kill-transactions: $(STAMP) ## pods of both coordinators killed KILLS=50 times each at each step of transactions, by real processes (30 minutes)
	@KILLS=$(or $(KILLS),50) $(BIN)/pytest -q tests/integration/test_transaction_kills.py --timeout 3600

.PHONY: kill-mixed
kill-mixed: $(STAMP) ## the leader of a group with members of both protocols killed KILLS=50 times while they come and go (10 minutes)
	@KILLS=$(or $(KILLS),50) $(BIN)/pytest -q tests/integration/test_mixed_protocols.py -k killed

.PHONY: kill-owners
kill-owners: $(STAMP) ## the leader of a group with members of Java and franz-go killed KILLS=50 times in the middle of their rebalances; what they owned compared (Java, Maven, Go; 8 minutes)
	@CLIENTS="$(or $(CLIENTS),java franz)" KILLS=$(or $(KILLS),50) $(BIN)/pytest -q -s tests/integration/test_owner_logs_under_kills.py

.PHONY: prove-mirror
prove-mirror: $(STAMP) ## a million commits of 10,000 groups at three brokers: groups and 1,000 moments of the mirror, catch-up and lag (8 minutes)
	@hack/compiled run env MIRROR_GROUPS=10000 MIRROR_COMMITS=1000000 MIRROR_MOMENTS=1000 MIRROR_BROKERS=3 MIRROR_PODS=3 MIRROR_PARTITIONS=32 \
	  $(BIN)/pytest -q -s tests/integration/test_mirror_at_size.py

.PHONY: prove-moves
prove-moves: $(STAMP) ## live groups move to Muster and back: GROUPS=50 of five clients at three brokers, 500 commits a second; all pods lost; leader, gateway, Kafka killed ROUNDS=5 times at each step (Java, Maven; 2 hours)
	@hack/compiled run env MOVE_GROUPS=$(or $(GROUPS),50) MOVE_BROKERS=3 $(BIN)/pytest -q -s tests/integration/test_moves_at_size.py
	@MOVE_GROUPS=$(or $(GROUPS),50) $(BIN)/pytest -q -s tests/integration/test_write_back_at_kafka.py
	@ROUNDS=$(or $(ROUNDS),5) $(BIN)/pytest -q -s tests/integration/test_moves_under_kills.py tests/integration/test_ways_back_under_kills.py

.PHONY: prove-exactly-once
prove-exactly-once: $(STAMP) ## transactions of Java and librdkafka: gateway, leader, mirror, broker killed KILLS=10 times each, markers 5 s late (10 minutes)
	@hack/compiled run env TXN_KILLS=$(or $(KILLS),10) TXN_BROKERS=3 TXN_MARKERS_LATE_S=5 TXN_LATE_TRANSACTIONS=4 \
	  $(BIN)/pytest -q -s tests/integration/test_exactly_once.py

.PHONY: prove-gateway
prove-gateway: $(STAMP) ## leaders of Muster killed and Kafka's brokers restarted 20 times each under clients of the gateway (11 minutes, a quiet machine)
	@KILLS=20 $(BIN)/pytest -q -s tests/integration/test_gateway_failover.py
	@ROUNDS=20 $(BIN)/pytest -q -s tests/integration/test_gateway_brokers.py

.PHONY: prove-members
prove-members: $(STAMP) ## members of six clients with all assignors behind the gateway: killed, frozen, static (Java, Maven, Go; 10 minutes)
	@CLIENTS="$(or $(CLIENTS),java librdkafka franz sarama kafka-python aiokafka)" \
	  $(BIN)/pytest -q -s tests/integration/test_gateway_members.py

.PHONY: prove-consumers
prove-consumers: $(STAMP) ## members with group.protocol=consumer of Java, librdkafka and franz-go, at a pod and through the gateway: killed, paused, static, moved from the classic protocol and back; what they own compared (Java, Maven, Go; 3 minutes)
	@CLIENTS="$(or $(CLIENTS),java librdkafka franz)" $(BIN)/pytest -q -s tests/integration/test_members_of_the_new_protocol.py

.PHONY: prove-backup
prove-backup: $(STAMP) ## a cluster lost and restored ROUNDS=20 times under 500 commits a second, with transactions open; backups killed at each kind of step TIMES=5 times, stores that are full, slow, failing (20 minutes)
	@ROUNDS=$(or $(ROUNDS),20) RATE=$(or $(RATE),500) TIMES=$(or $(TIMES),5) $(BIN)/pytest -q -s tests/integration/test_backup_rounds.py

.PHONY: prove-assignors
prove-assignors: $(STAMP) ## consumer groups drawn at random, ASSIGNMENTS=10000 for each assignor, beside Kafka's own (Java, Maven; 2 minutes)
	@ASSIGNMENTS=$(or $(ASSIGNMENTS),10000) $(BIN)/pytest -q tests/conformance/test_assignors.py

.PHONY: fuzz
fuzz: $(STAMP) ## damaged frames, handshakes, logins and log files for SECONDS=60 seconds (saved in .cache/fuzz), then new examples for property tests
	@$(BIN)/python -m tests.fuzz run --seconds $(or $(SECONDS),60)
	@HYPOTHESIS_PROFILE=explore $(BIN)/pytest -q tests/unit tests/golden

.PHONY: lint
lint: $(STAMP) ## ruff, formatting, mypy --strict, import layers; gofmt and shell syntax for the tools; links and anchors of docs
	@# no cache: which imports are ours depends on the tree, and the cache does not see that
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --check .
	$(BIN)/python hack/plain_english.py
	$(BIN)/mypy
	MYPYPATH=bench:hack $(BIN)/mypy bench hack
	$(BIN)/lint-imports
	PYTHONPATH=gateway $(BIN)/lint-imports --config gateway/imports.toml
	for script in hack/localkube/cluster hack/localkube/node.sh hack/image hack/helm hack/operator-verify hack/olm-operator hack/sbom hack/compiled hack/python .ci/run; do bash -n $$script; done
	@if ! command -v gofmt >/dev/null; then echo 'skipped: gofmt (install Go)'; \
	  elif files=$$(gofmt -l bench hack) && [ -n "$$files" ]; then echo "gofmt would change: $$files" >&2; exit 1; fi
	@# neither ruff nor mypy sees a name that a test imports from another test and that is gone
	@out=$$($(BIN)/python -m pytest --collect-only -qq -p no:cacheprovider tests 2>&1) || { echo "$$out" | tail -40 >&2; exit 1; }
	@$(MAKE) --no-print-directory docs

.PHONY: docs
docs: $(DOCS)/.synced ## the site of docs/ in build/docs; fails at a link, an anchor or a page of the navigation that is not there
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet
	@echo "the site: build/docs/index.html (search wants a server: python3 -m http.server -d build/docs)"

.PHONY: format
format: $(STAMP) ## let ruff and gofmt rewrite the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@if command -v gofmt >/dev/null; then gofmt -w bench hack; fi

##@ Measure
.PHONY: bench-commits
bench-commits: $(STAMP) ## commits/s, commits per CPU-second, p50 and p99 of a pod at 1, 64, 512 connections, plain and secured, and Kafka's
	@hack/compiled run $(BIN)/python bench/commits.py --secured --with-kafka

.PHONY: bench-handshakes
bench-handshakes: $(STAMP) ## TLS handshakes and logins per second beside groups that commit: p50 and p99 of the groups (2 minutes)
	@hack/compiled run $(BIN)/python bench/handshakes.py

.PHONY: bench-load
bench-load: $(STAMP) ## loading of 5 million records over 50 partitions: time, memory, and what active groups see of it
	@hack/compiled run $(BIN)/python bench/load.py

.PHONY: bench-failover
bench-failover: $(STAMP) ## interruption at SIGKILL, SIGTERM and planned moves beside Kafka; a million stored offsets
	@hack/compiled run $(BIN)/python bench/failover.py

.PHONY: bench
bench: $(STAMP) ## Muster beside Kafka on every row, in turns (docs/performance.md; half an hour), then load and failover
	@hack/compiled run $(BIN)/python bench/compare.py --document
	@hack/compiled run $(BIN)/python bench/load.py
	@hack/compiled run $(BIN)/python bench/failover.py

.PHONY: bench-soak
bench-soak: $(STAMP) ## an hour of 10,000 commits/s (MINUTES=n): latency and memory by the minute; fails when memory grows
	@hack/compiled run $(BIN)/python bench/soak.py $(if $(MINUTES),--minutes $(MINUTES))

.PHONY: bench-gateway
bench-gateway: $(STAMP) ## MB/s, CPU per GB, small requests and memory of the gateway, beside the same without it; then with TLS (Java, Maven)
	@hack/compiled run $(BIN)/python bench/gateway.py
	@hack/compiled run $(BIN)/python bench/gateway.py --tls

.PHONY: bench-operators
bench-operators: $(STAMP) ## CPU and memory of an operator with 20 clusters of 50 partitions, against one (pods simulated)
	@PYTHONPATH=. $(BIN)/python bench/operators.py

.PHONY: bench-pipeline
bench-pipeline: $(STAMP) ## offset commits per second that the pipeline decodes, per core and through Spark
	@$(BIN)/python bench/pipeline.py

##@ Kubernetes
.PHONY: image
image: $(STAMP) ## build the image muster:local (docker, podman, or buildah with a base image of our own)
	@hack/image build

.PHONY: image-pipeline
image-pipeline: $(STAMP) ## build the image muster-pipeline:local, of Spark with the pipeline (needs a Debian mirror for Java)
	@hack/image build pipeline

.PHONY: sbom
sbom: $(STAMP) ## what the images have of Python packages, with hashes, as CycloneDX in build/sbom; signed where cosign and COSIGN_KEY are
	@hack/sbom build/sbom

.PHONY: krew
krew: $(STAMP) ## `kubectl muster` for krew in build/krew: an archive for Linux and macOS, and its manifest; KREW_BASE is its address
	@$(BIN)/python hack/krew.py build/krew $(KREW_BASE)

.PHONY: olm-bundle
olm-bundle: $(STAMP) ## the bundle for the Operator Lifecycle Manager in build/olm, for IMAGE=registry/muster:tag
	@$(BIN)/python hack/olm.py build/olm $(IMAGE)

.PHONY: charts
charts: $(STAMP) ## the charts as they are published in build/charts, with what Artifact Hub shows, for IMAGE=registry/muster:tag
	@$(BIN)/python hack/artifact_hub.py build/charts $(IMAGE)

.PHONY: operator-verify
operator-verify: ## compile OLM's validator of bundles as .cache/bin/operator-verify (Go)
	@hack/operator-verify

.PHONY: helm
helm: ## compile Helm as .cache/bin/helm (Go)
	@hack/helm

.PHONY: kube-up
kube-up: ## a real Kubernetes on this machine (root, Go, containerd), of NODES=1; prints its KUBECONFIG
	@$(CLUSTER) build && $(CLUSTER) up

.PHONY: kube-down
kube-down: ## stop it and remove pods, volumes, mounts and interfaces
	@$(CLUSTER) down

##@ Install
.PHONY: install
install: $(STAMP) ## install the locked dependencies and Muster itself into .venv

$(STAMP): pyproject.toml uv.lock | $(UV)
	@echo "installing the locked dependencies into $(VENV)"
	@python=$$(hack/python); $(UV) sync --quiet --frozen --all-extras --compile-bytecode $${python:+--python "$$python"}
	@touch $@

$(DOCS)/.synced: pyproject.toml uv.lock | $(UV)
	@echo "installing what builds the site into $(DOCS)"
	@python=$$(hack/python); UV_PROJECT_ENVIRONMENT=$(DOCS) $(UV) sync --quiet --frozen --only-group docs $${python:+--python "$$python"}
	@touch $@

$(BROWSER)/.synced: pyproject.toml uv.lock | $(UV)
	@echo "installing what drives a browser into $(BROWSER)"
	@python=$$(hack/python); UV_PROJECT_ENVIRONMENT=$(BROWSER) $(UV) sync --quiet --frozen --only-group browser $${python:+--python "$$python"}
	@touch $@

.cache/uv/bin/uv:
	@echo "no uv on this machine: installing one into .cache/uv"
	@$(PYTHON) -m venv .cache/uv || { echo "python3 -m venv failed: install python3-venv (Debian) or uv" >&2; exit 1; }
	@.cache/uv/bin/pip install --quiet 'uv>=0.5,<1'

.PHONY: clean
clean: ## remove .venv, .cache and what was built in this clone (not the shared MUSTER_CACHE)
	rm -rf .venv .cache build dist bench/results .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
