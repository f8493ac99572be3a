package conversion

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"onebit/engine/gguf"
)

// difference sums up how far one tensor is from another.
type difference struct{ wrong, norm float64 } // sums of squares

func (d *difference) add(o difference) { d.wrong, d.norm = d.wrong+o.wrong, d.norm+o.norm }

// relative returns the norm of the difference over the norm of the source.
func (d *difference) relative() float64 {
	if d.wrong == 0 {
		return 0
	}
	return math.Sqrt(d.wrong / d.norm)
}

// verifier compares a rotated file with its source.
type verifier struct {
	in         *gguf.File
	importance imatrix
	workers    int

	all, weighted difference
	worst         float64 // relative error
	worstName     string
	without       int // rotated tensors that the importance matrix does not know
}

// check refuses a file in which a Q4_0 tensor is not the rotated form of its source.
func (v *verifier) check(f *gguf.File) error {
	if n, ok := f.Uint(HadamardKey); !ok || n != rotation {
		return fmt.Errorf("the stamp %s is missing", HadamardKey)
	}
	for _, t := range f.Tensors() {
		source := v.in.Tensor(t.Name)
		if source == nil || source.Elements() != t.Elements() {
			return fmt.Errorf("tensor %q is not that of the source", t.Name)
		}
		if t.Type != gguf.Q4_0 {
			continue
		}
		if err := v.tensor(t, source); err != nil {
			return err
		}
		f.Drop(t)
		v.in.Drop(source)
	}
	return nil
}

// tensor turns one tensor back and compares it with its source.
func (v *verifier) tensor(t, source *gguf.Tensor) error {
	importance := v.importance.blocks(t)
	if v.importance != nil && importance == nil {
		v.without++
	}
	plain, weighted := make([]difference, v.workers), make([]difference, v.workers)
	errs := make([]error, v.workers)
	total := int(t.Elements())
	var wg sync.WaitGroup
	for i := range v.workers {
		wg.Go(func() {
			for lo := i * piece; lo < total && errs[i] == nil; lo += v.workers * piece {
				errs[i] = compare(t, source, lo, min(lo+piece, total), func(block int, d difference) {
					plain[i].add(d)
					if importance != nil {
						k := importance.at(block)
						weighted[i].add(difference{d.wrong * k, d.norm * k})
					}
				})
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var d difference
	for i := range plain {
		d.add(plain[i])
		v.weighted.add(weighted[i])
	}
	v.all.add(d)
	e := d.relative()
	if e > maxError || math.IsNaN(e) {
		return fmt.Errorf("tensor %q is not the rotated form of its source: turned back it is off by %.3f of its norm", t.Name, e)
	}
	if e > v.worst {
		v.worst, v.worstName = e, t.Name
	}
	return nil
}

// compare yields the difference of each block of lo to hi.
func compare(t, source *gguf.Tensor, lo, hi int, yield func(block int, d difference)) error {
	got, err := weightsOf(t, lo, hi)
	if err != nil {
		return err
	}
	want, err := weightsOf(source, lo, hi)
	if err != nil {
		return err
	}
	for i := 0; i < len(got); i += rotation {
		turnBlock(got[i:][:rotation])
		var d difference
		for j := i; j < i+rotation; j++ {
			e := float64(got[j]) - float64(want[j])
			d.wrong += e * e
			d.norm += float64(want[j]) * float64(want[j])
		}
		yield((lo+i)/rotation, d)
	}
	return nil
}
