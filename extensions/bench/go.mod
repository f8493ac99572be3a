// The benchmarks of extensions are a module of their own, so that the program does not depend on what it is compared with.
module onebit/extensions/bench

go 1.26.0

require (
	github.com/extism/go-sdk v1.7.1
	github.com/tetratelabs/wazero v1.12.0
	onebit v0.0.0
)

require (
	github.com/dylibso/observe-sdk/go v0.0.0-20240819160327-2d926c5d788a // indirect
	github.com/elastic/go-seccomp-bpf v1.6.0 // indirect
	github.com/gobwas/glob v0.2.3 // indirect
	github.com/ianlancetaylor/demangle v0.0.0-20240805132620-81f5be970eca // indirect
	github.com/landlock-lsm/go-landlock v0.11.2 // indirect
	github.com/tetratelabs/wabin v0.0.0-20230304001439-f6f874872834 // indirect
	go.opentelemetry.io/proto/otlp v1.11.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	kernel.org/pub/linux/libs/security/libcap/psx v1.2.78 // indirect
)

replace onebit => ../..
