package tensor_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"onebit/engine/tensor"
)

// rounds keeps the stress tests short on a machine with few cores.
const rounds = 200

// eachTeam runs f with teams of 1 to 8 workers, with the usual spins, with
// short ones, and with workers that park at almost every wait.
func eachTeam(t *testing.T, f func(t *testing.T, team *tensor.Team)) {
	for n := 1; n <= 8; n++ {
		for _, spin := range []time.Duration{-1, 0, 5 * time.Microsecond} {
			t.Run(fmt.Sprintf("workers=%d/spin=%v", n, spin), func(t *testing.T) {
				team := tensor.NewTeam(n)
				defer team.Close()
				if spin >= 0 {
					team.SetSpin(spin, spin)
				}
				f(t, team)
			})
		}
	}
}

func TestTeamRunsEveryWorkerOnce(t *testing.T) {
	eachTeam(t, func(t *testing.T, team *tensor.Team) {
		seen := make([]int, team.Size())
		for range rounds {
			team.Run(func(w *tensor.Worker) {
				if w.N != team.Size() {
					t.Errorf("N is %d, want %d", w.N, team.Size())
				}
				seen[w.ID]++
			})
		}
		for id, n := range seen {
			if n != rounds {
				t.Errorf("worker %d ran %d times, want %d", id, n, rounds)
			}
		}
	})
}

func TestTeamRunNUsesTheFirstWorkers(t *testing.T) {
	team := tensor.NewTeam(4)
	defer team.Close()
	for _, tt := range []struct{ ask, want int }{{-1, 1}, {0, 1}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {9, 4}} {
		var mask atomic.Int32
		team.RunN(tt.ask, func(w *tensor.Worker) {
			mask.Or(1 << w.ID)
			w.Barrier()
			if w.N != tt.want {
				t.Errorf("RunN(%d): N is %d, want %d", tt.ask, w.N, tt.want)
			}
		})
		if want := int32(1)<<tt.want - 1; mask.Load() != want {
			t.Errorf("RunN(%d) used the workers %b, want %b", tt.ask, mask.Load(), want)
		}
	}
}

func TestBarrierSeparatesPhases(t *testing.T) {
	eachTeam(t, func(t *testing.T, team *tensor.Team) {
		const phases = 20
		// Plain integers: the race detector sees a barrier that does not hold.
		value := make([]int, team.Size())
		for range rounds / 10 {
			clear(value)
			team.Run(func(w *tensor.Worker) {
				for p := range phases {
					value[w.ID]++
					w.Barrier()
					for id, v := range value {
						if v != p+1 {
							t.Errorf("phase %d: worker %d is at %d", p, id, v)
						}
					}
					w.Barrier()
				}
			})
		}
	})
}

func TestEachCoversTheRangeOnce(t *testing.T) {
	eachTeam(t, func(t *testing.T, team *tensor.Team) {
		for _, n := range []int{0, 1, 2, 7, 64, 1000} {
			for _, grain := range []int{1, 3, 64, 5000} {
				done := make([]int32, n)
				again := make([]int32, n)
				team.Run(func(w *tensor.Worker) {
					// Calls without a barrier between them may overlap.
					for range 20 {
						w.Each(n, grain, func(from, to int) {
							if to-from > grain || to <= from {
								t.Errorf("range %d to %d of %d by %d", from, to, n, grain)
							}
							for i := from; i < to; i++ {
								atomic.AddInt32(&done[i], 1)
							}
						})
						w.Each(n, grain, func(from, to int) {
							for i := from; i < to; i++ {
								atomic.AddInt32(&again[i], 1)
							}
						})
					}
				})
				for i := range n {
					if done[i] != 20 || again[i] != 20 {
						t.Fatalf("n=%d grain=%d: index %d was done %d and %d times, want 20", n, grain, i, done[i], again[i])
					}
				}
			}
		}
	})
}

func TestSplitCoversTheRange(t *testing.T) {
	eachTeam(t, func(t *testing.T, team *tensor.Team) {
		for _, n := range []int{0, 1, 5, 64, 1000} {
			for _, grain := range []int{1, 4, 16} {
				from, to := make([]int, team.Size()), make([]int, team.Size())
				team.Run(func(w *tensor.Worker) { from[w.ID], to[w.ID] = w.Split(n, grain) })
				next := 0
				for id := range from {
					if from[id] != next || to[id] < from[id] || to[id]%grain != 0 && to[id] != n {
						t.Errorf("n=%d grain=%d: worker %d has %d to %d", n, grain, id, from[id], to[id])
					}
					next = to[id]
				}
				if next != n {
					t.Errorf("n=%d grain=%d: the ranges end at %d", n, grain, next)
				}
			}
		}
	})
}

// catch returns what f panics with.
func catch(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

func TestPanicReachesTheCaller(t *testing.T) {
	eachTeam(t, func(t *testing.T, team *tensor.Team) {
		for round := range rounds / 4 {
			culprit := round % team.Size()
			value := catch(func() {
				team.Run(func(w *tensor.Worker) {
					w.Each(16, 1, func(int, int) {})
					w.Barrier()
					if w.ID == culprit {
						panic(round)
					}
					w.Each(round, 1, func(int, int) {})
					w.Barrier()
					w.Barrier()
				})
			})
			p, ok := value.(*tensor.WorkerPanicError)
			if !ok || p.Value != round || p.Worker != culprit || !strings.Contains(p.Error(), "team_test.go") {
				t.Fatalf("round %d: caught %v", round, value)
			}
			var n atomic.Int32
			team.Run(func(w *tensor.Worker) {
				w.Barrier()
				w.Each(100, 7, func(from, to int) { n.Add(int32(to - from)) })
				w.Barrier()
			})
			if n.Load() != 100 {
				t.Fatalf("round %d: the Run after the panic covered %d of 100", round, n.Load())
			}
		}
	})
}

func TestGoexitInAWorkerIsAPanic(t *testing.T) {
	team := tensor.NewTeam(3)
	defer team.Close()
	value := catch(func() {
		team.Run(func(w *tensor.Worker) {
			if w.ID == 1 {
				runtime.Goexit()
			}
			w.Barrier()
		})
	})
	if value == nil {
		t.Error("Run returned although a worker called Goexit")
	}
	var n atomic.Int32
	team.Run(func(w *tensor.Worker) { n.Add(1); w.Barrier() })
	if n.Load() != 3 {
		t.Errorf("the next Run had %d workers, want 3", n.Load())
	}
}

func TestRunsOfSeveralGoroutines(t *testing.T) {
	team := tensor.NewTeam(3)
	defer team.Close()
	total := 0 // Runs follow one another, so this needs no lock
	done := make(chan struct{})
	for range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range rounds {
				team.Run(func(w *tensor.Worker) {
					if w.ID == w.N-1 {
						total++
					}
				})
			}
		}()
	}
	for range 4 {
		<-done
	}
	if total != 4*rounds {
		t.Errorf("%d Runs happened, want %d", total, 4*rounds)
	}
}

// TestCloseEndsTheWorkers runs in a bubble, which ends when all goroutines in it have.
func TestCloseEndsTheWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			team := tensor.NewTeam(4)
			team.Run(func(w *tensor.Worker) { w.Barrier() })
			team.Close()
			team.Close()
			if catch(func() { team.Run(func(*tensor.Worker) {}) }) == nil {
				t.Fatal("a closed team ran")
			}
		}
	})
}
