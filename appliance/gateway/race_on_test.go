//go:build race

package gateway_test

// raced is how many allocations an event may cost more here: the race detector lets pools forget, net/http's among them.
const raced = 1
