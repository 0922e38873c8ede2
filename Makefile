# OaaS: what people and CI run. `make help` explains each target.

HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
OPRC := target/debug/oprc
HELLO := target/hello-fn.oci.tar
# Images hold one static program each.
STATIC := --profile image --target $(HOST) --config "target.$(HOST).rustflags=['-C','target-feature=+crt-static']"
# The cluster's name, for a second one beside the first.
NAME ?= oprc
# Options for the cluster that `make up` makes, such as UP="--knative" or UP="--node simulated".
UP ?=

.PHONY: help
help: ## Explain each target
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

.PHONY: tools
tools:
	@tools/require.sh

.PHONY: build
build: tools
	@cargo build --quiet -p oprc-cli

.PHONY: image
image: build ## Make the sample function's image, target/hello-fn.oci.tar
	@cargo build --quiet -p hello-fn $(STATIC)
	@$(OPRC) sandbox image --name oprc.local/hello-fn:dev target/$(HOST)/image/hello-fn $(HELLO)

.PHONY: up
up: image ## From nothing to a cluster with Prometheus and a sample function that answers
	@PROGRAM=$(OPRC) IMAGE=$(HELLO) NAME=$(NAME) tools/up.sh $(UP)

.PHONY: down
down: build ## End what `make up` started and leave the machine as it was
	@$(OPRC) sandbox down --name $(NAME)

.PHONY: status
status: build ## Tell how the cluster and the sample function are
	@$(OPRC) sandbox status --name $(NAME)
	@$(OPRC) sandbox kubectl --name $(NAME) -- get nodes,pods --all-namespaces

.PHONY: test
test: image ## Run all tests, those on real clusters included
	@tools/test.sh

.PHONY: prove
prove: image ## Run the suites that are too long for CI, and write docs/proof.md
	@OPRC_PROVE=docs/proof.md tools/test.sh proof::

.PHONY: bench
bench: image ## Print figures as ratios against a limit or a peer
	@OPRC=$(CURDIR)/$(OPRC) cargo bench --quiet -p oprc-tests

.PHONY: lint
lint: tools ## Check formatting, lints, licences and sources
	@tools/lint.sh

.PHONY: fmt
fmt: tools ## Format the code
	@cargo fmt --all
	@gofmt -w tools/oprc-sandbox/programs

.PHONY: clean
clean: ## Delete what was built here; programs in the cache stay
	@cargo clean
