package main

import (
	"encoding/binary"
	"math"

	"onebit/extensions/laya"
)

// calibrate finds the temperature at which the labelled texts are least surprising.
func calibrate(n *net, dev []labelled) float64 {
	f, p := new(laya.Features), &pass{grad: make([]float32, parameters)}
	logits := make([][laya.Chosen]float64, len(dev))
	for i := range dev {
		n.read(p, f, dev[i].Text)
		for c, v := range p.prob {
			logits[i][c] = math.Log(float64(v) + 1e-9)
		}
	}
	bestT, bestLoss := 1.0, math.Inf(1)
	for t := 0.3; t < 4; t += 0.01 {
		loss := 0.0
		for i, l := range logits {
			total := 0.0
			for _, v := range l {
				total += math.Exp(v / t)
			}
			loss += math.Log(total) - l[dev[i].class]/t
		}
		if loss < bestLoss {
			bestT, bestLoss = t, loss
		}
	}
	return bestT
}

// pack writes the weights as laya.Load reads them.
func (n *net) pack(temperature float64) []byte {
	number := func(b []byte, v float32) []byte { return binary.LittleEndian.AppendUint32(b, math.Float32bits(v)) }
	const scale = float32(limit) / 127
	b := []byte("LAYA\x01\x00\x00\x00")
	b = binary.LittleEndian.AppendUint32(b, uint32(n.rows))
	b = number(b, scale)
	b = number(b, float32(temperature))
	for _, v := range n.table {
		b = append(b, byte(128+int(math.RoundToEven(float64(v/scale)))))
	}
	layer := func(w []float32, bias float32) {
		top := float32(1e-9)
		for _, v := range w {
			top = max(top, v, -v)
		}
		top /= 127
		b = number(number(b, top), bias)
		for _, v := range w {
			b = append(b, byte(int8(math.RoundToEven(float64(v/top)))))
		}
	}
	for h := range n.hidden {
		layer(n.hidden[h][:], n.bias[h])
	}
	for c := range n.out {
		layer(n.out[c][:], n.shift[c])
	}
	return b
}
