package tensor_test

import (
	"sync"
	"testing"
	"unsafe"

	"onebit/engine/tensor"
)

func TestArenaMemoryIsZeroAlignedAndApart(t *testing.T) {
	a := tensor.NewArena()
	defer a.Close()
	var all [][]byte
	total := int64(0)
	for i, n := range []int{1, 63, 64, 65, 0, 4096, 300 << 10, 1, 2 << 20, 3<<20 + 5, 17, 70 << 20, 100} {
		b := a.Bytes(n)
		if len(b) != n {
			t.Fatalf("asked %d bytes, got %d", n, len(b))
		}
		total += int64(n)
		if n == 0 {
			continue
		}
		if at := uintptr(unsafe.Pointer(&b[0])); at%64 != 0 {
			t.Errorf("%d bytes lie at %#x", n, at)
		}
		for j := 0; j < n; j += 1 + n/5000 {
			if b[j] != 0 {
				t.Fatalf("byte %d of %d is %d", j, n, b[j])
			}
			b[j] = byte(i + 1)
		}
		b[n-1] = byte(i + 1)
		all = append(all, b)
	}
	for _, b := range all {
		for j := 0; j < len(b); j += 1 + len(b)/5000 {
			if b[j] != b[len(b)-1] {
				t.Fatalf("byte %d of %d belongs to another slice too", j, len(b))
			}
		}
	}
	if a.Used() < total || a.Used() > total+64*13 || a.Mapped() < a.Used() {
		t.Errorf("asked %d bytes; used %d, mapped %d", total, a.Used(), a.Mapped())
	}
}

func TestArenaSlicesDoNotGrowIntoEachOther(t *testing.T) {
	a := tensor.NewArena()
	defer a.Close()
	first, second := a.Floats(16), a.Floats(16)
	_ = append(first, 1)
	if second[0] != 0 {
		t.Error("append to one slice wrote into the next")
	}
	if h := a.Halves(33); len(h) != 33 {
		t.Errorf("asked 33 halves, got %d", len(h))
	}
}

func TestArenaRelease(t *testing.T) {
	a := tensor.NewArena()
	defer a.Close()
	whole := a.Bytes(5 << 20)
	small := a.Bytes(100)
	for _, r := range []struct{ from, to int }{{0, 0}, {0, 5 << 20}, {100, 3 << 20}, {64, 4000}, {4096, 8192}, {1 << 20, 5<<20 - 1}} {
		for i := range whole {
			whole[i] = 7
		}
		small[0], small[99] = 7, 7
		a.Release(whole[r.from:r.to])
		for i, v := range whole {
			if inside := i >= r.from && i < r.to; inside && v != 0 || !inside && v != 7 {
				t.Fatalf("after the release of %d to %d byte %d is %d", r.from, r.to, i, v)
			}
		}
		if small[0] != 7 || small[99] != 7 {
			t.Fatalf("the release of %d to %d changed another slice", r.from, r.to)
		}
	}
}

func TestArenaClose(t *testing.T) {
	a := tensor.NewArena()
	a.Bytes(10 << 20)
	a.Close()
	a.Close()
	if a.Mapped() != 0 || a.Used() != 0 {
		t.Errorf("a closed arena has %d bytes mapped and %d used", a.Mapped(), a.Used())
	}
	if catch(func() { a.Bytes(1) }) == nil {
		t.Error("a closed arena gave memory")
	}
	if catch(func() { tensor.NewArena().Bytes(-1) }) == nil {
		t.Error("-1 bytes were given")
	}
}

func TestArenaFromManyGoroutines(t *testing.T) {
	a := tensor.NewArena()
	defer a.Close()
	var wg sync.WaitGroup
	for id := range 4 {
		wg.Go(func() {
			for i := range 200 {
				b := a.Bytes(1 + i*37)
				for j := range b {
					if b[j] != 0 {
						t.Errorf("byte %d of %d is taken", j, len(b))
						return
					}
					b[j] = byte(id + 1)
				}
			}
		})
	}
	wg.Wait()
}
