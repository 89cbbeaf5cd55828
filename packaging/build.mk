# build.mk - the shared library, installation and packages; included by the Makefile.
VERSION := $(shell sed -n 's/^\#define PL_VERSION_STRING "\(.*\)"/\1/p' include/plimsoll.h)
SONAME  := libplimsoll.so.0
SHARED  := $(BUILD)/libplimsoll.so.$(VERSION)
LIBDIR  ?= $(PREFIX)/lib
INSTALL  = DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" BUILD="$(BUILD)" VERSION="$(VERSION)" LIBS="$(LIBS)" \
 PLUGINS="$(MPI_PLUGIN) $(SP_PLUGIN) $(PLUGIN)" packaging/install

# Public functions have the version PLIMSOLL_0, functions for plug-ins PLIMSOLL_PRIVATE (packaging/map).
$(BUILD)/libplimsoll.map: packaging/map $(wildcard include/*.h) $(BUILD)/libplimsoll.a
	@CC="$(CC)" packaging/map $(BUILD)/libplimsoll.a >$@
$(SHARED): $(BUILD)/libplimsoll.map
	$(call say,link $@)
	@$(CC) -shared -o $@ -Wl,-soname,$(SONAME) -Wl,--version-script=$< -Wl,-z,defs -Wl,--whole-archive \
	 $(BUILD)/libplimsoll.a -Wl,--no-whole-archive $(LDFLAGS) $(LIBS)
	@ln -sf $(@F) $(BUILD)/$(SONAME) && ln -sf $(SONAME) $(BUILD)/libplimsoll.so
shared: $(SHARED) ## the shared library, with versioned symbols

install: all $(SHARED) ## copy program, libraries, headers, man pages, completions, documents under PREFIX (/usr/local)
	@$(INSTALL)
uninstall: ## remove what make install copied
	@$(INSTALL) --uninstall
deb: $(BUILD)/plimsoll $(SHARED) ## build/deb: Debian packages plimsoll, libplimsoll0, libplimsoll-dev, plimsoll-cuda (with nvcc)
	@CUDA_HOME="$(CUDA_HOME)" packaging/deb build/deb $(if $(PLUGIN),cuda)
dist: ## build/dist: a tarball that runs on any Linux with glibc 2.31 (root; builds in a Debian 11 root)
	@packaging/dist build/dist
# Tests install it (tests/base/test_packaging.c).
$(BUILD)/pl_test: | $(if $(SAN),,$(SHARED))
.PHONY: shared install uninstall deb dist
