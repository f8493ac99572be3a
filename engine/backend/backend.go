// Package backend says where a model runs. A Remote is a server that speaks llama-server's dialect over HTTP; a Child is
// such a server that we start, watch, restart and stop ourselves; a Plan says which servers to start for a model, on which
// device and with which command lines.
//
// # A child's life
//
// One goroutine, Child.Run, owns the process. Everybody else sees the latest moment that it published and may wait for
// the next one.
//
//	moment    process   State    Ready              Generate      left when
//	loading   starting  Loading  waits              unavailable   answers /health, gives its proof -> serving
//	                                                              exits, or takes too long -> Run returns an error
//	serving   running   Ready    nil                runs          exits -> pausing
//	pausing   none      Down     waits; after two   unavailable   the pause is over -> reviving
//	                             failures in a row
//	                             unavailable
//	reviving  starting  Down     waits              unavailable   answers, gives its proof -> serving
//	                                                              exits, or takes too long -> pausing
//	stopped   none      Stopped  unavailable        unavailable   never
//
// The context of Run ends every moment: the process is asked to end, killed when it does not, and Run returns nil.
// A pause is 1 s after the first failure and doubles up to 30 s. The count of failures starts anew once a process has
// answered a request or served for 30 s; being able to start is not enough, since a server may die of each request.
//
// # Races, and what is done about them
//
// The port of a child is chosen by binding port 0 and letting go. Somebody else may take it before the child does. Then
// either the child ends and a stranger answers on the port, or the health check reaches a stranger; on Linux the
// kernel's tables show that the listening socket is not the child's. Both are tried again at once with another port.
//
// A request may fail a moment before Run hears of the child's end. Generate then waits briefly for the next moment, so
// that whoever sends the request again does not meet the dead child a second time.
//
// A child must not outlive us, even when we are killed. On Linux the kernel sends it SIGTERM when the thread that
// started it ends, so Run keeps one thread for itself as long as it runs; a parent that is gone before the child has
// asked for that signal is noticed by the child before it begins. Each child leads its own process group: the
// terminal's Ctrl-C does not reach it, and whatever it started is killed with it.
package backend
