package main

import (
	"math"
	"math/rand/v2"

	"onebit/extensions/laya"
)

// net is the model in training. It learns from one example at a time in one goroutine, and no product is joined with a sum: the
// same seed gives the same bits.
type net struct {
	rows   int
	table  []float32 // [rows][Dims]
	square []float32 // [rows], AdaGrad's sums
	hidden [laya.Hidden][laya.Inputs]float32
	bias   [laya.Hidden]float32
	out    [laya.Chosen][laya.Hidden]float32
	shift  [laya.Chosen]float32
	dense  adam
}

// adam keeps the moments of the small layers, in one run: hidden, bias, out, shift.
type adam struct {
	m, v []float32
	t    int
}

const parameters = laya.Hidden*(laya.Inputs+1) + laya.Chosen*(laya.Hidden+1)

func newNet(r *rand.Rand, rows int) *net {
	n := &net{rows: rows, table: make([]float32, rows*laya.Dims), square: make([]float32, rows)}
	for i := range n.table {
		n.table[i] = float32(r.Float32()-0.5) * 0.1
	}
	for i := range n.hidden {
		for j := range n.hidden[i] {
			n.hidden[i][j] = float32(r.NormFloat64() * math.Sqrt(2.0/laya.Inputs))
		}
	}
	for i := range n.out {
		for j := range n.out[i] {
			n.out[i][j] = float32(r.NormFloat64() * math.Sqrt(2.0/laya.Hidden))
		}
	}
	n.dense = adam{m: make([]float32, parameters), v: make([]float32, parameters)}
	return n
}

// pass is the room that one example needs.
type pass struct {
	rows   [laya.Bags][]uint32
	in     [laya.Inputs]float32
	act    [laya.Hidden]float32
	prob   [laya.Chosen]float32
	grad   []float32 // of the small layers
	back   [laya.Inputs]float32
	factor [laya.Bags]float32
}

// forward fills in, act and prob from rows.
func (n *net) forward(p *pass) {
	for bag, rows := range p.rows {
		dst := p.in[bag*laya.Dims : (bag+1)*laya.Dims]
		clear(dst)
		for _, r := range rows {
			src := n.table[int(r)*laya.Dims:][:laya.Dims]
			for i, v := range src {
				dst[i] += v
			}
		}
		p.factor[bag] = laya.Norm(len(rows))
		for i := range dst {
			dst[i] *= p.factor[bag]
		}
	}
	logits := n.shift
	for h := range n.hidden {
		v := n.bias[h]
		for i, w := range n.hidden[h] {
			v += float32(w * p.in[i])
		}
		p.act[h] = max(v, 0)
		for c := range logits {
			logits[c] += float32(n.out[c][h] * p.act[h])
		}
	}
	top, total := max(logits[0], logits[1], logits[2]), float32(0)
	for c, v := range logits {
		p.prob[c] = float32(math.Exp(float64(v - top)))
		total += p.prob[c]
	}
	for c := range p.prob {
		p.prob[c] /= total
	}
}

// smooth is how much of the target is spread over all classes.
const smooth = 0.05

// learn takes one step towards class, after forward.
func (n *net) learn(p *pass, class int, rate, denseRate float32) {
	var d [laya.Chosen]float32
	for c := range d {
		target := float32(smooth / laya.Chosen)
		if c == class {
			target += 1 - smooth
		}
		d[c] = p.prob[c] - target
	}
	clear(p.back[:])
	g := p.grad
	for h := range n.hidden {
		up := float32(0)
		if p.act[h] > 0 {
			for c := range d {
				up += float32(d[c] * n.out[c][h])
			}
		}
		for i := range p.in {
			g[h*laya.Inputs+i] = float32(up * p.in[i])
			p.back[i] += float32(up * n.hidden[h][i])
		}
		g[laya.Hidden*laya.Inputs+h] = up
	}
	at := laya.Hidden * (laya.Inputs + 1)
	for c := range d {
		for h := range p.act {
			g[at+c*laya.Hidden+h] = float32(d[c] * p.act[h])
		}
		g[at+laya.Chosen*laya.Hidden+c] = d[c]
	}
	n.step(g, denseRate)
	for bag, rows := range p.rows {
		n.learnRows(rows, p.back[bag*laya.Dims:(bag+1)*laya.Dims], float32(p.factor[bag]*rate), p.factor[bag])
	}
}

// learnRows moves the rows of one bag against its gradient, by AdaGrad with one sum for a row, and keeps them within what a byte
// can say.
func (n *net) learnRows(rows []uint32, back []float32, rate, factor float32) {
	squares := float32(0)
	for _, b := range back {
		grad := float32(b * factor)
		squares += float32(grad * grad)
	}
	for _, r := range rows {
		n.square[r] += squares / laya.Dims
		k := rate / float32(math.Sqrt(float64(n.square[r])+1e-5))
		w := n.table[int(r)*laya.Dims:][:laya.Dims]
		for i, b := range back {
			w[i] = min(max(w[i]-float32(k*b), -limit), limit)
		}
	}
}

// limit bounds a number of the table.
const limit = 1.5

// step moves the small layers, by Adam.
func (n *net) step(g []float32, rate float32) {
	a := &n.dense
	a.t++
	c1, c2 := float32(1), float32(1)
	if a.t < 4000 {
		c1, c2 = float32(1-math.Pow(0.9, float64(a.t))), float32(1-math.Pow(0.999, float64(a.t)))
	}
	at := 0
	move := func(w []float32) {
		for i := range w {
			k := at + i
			a.m[k] = float32(0.9*a.m[k]) + float32(0.1*g[k])
			a.v[k] = float32(0.999*a.v[k]) + float32(float32(0.001*g[k])*g[k])
			w[i] -= float32(rate*a.m[k]/c1) / float32(math.Sqrt(float64(a.v[k]/c2))+1e-6)
		}
		at += len(w)
	}
	for h := range n.hidden {
		move(n.hidden[h][:])
	}
	move(n.bias[:])
	for c := range n.out {
		move(n.out[c][:])
	}
	move(n.shift[:])
}
