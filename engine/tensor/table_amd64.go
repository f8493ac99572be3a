package tensor

//go:generate go run ./gen/ops

func floatTableFor(level Level) floatTable {
	switch level {
	case AVX512:
		return avx512FloatTable()
	case AVX2:
		return avx2FloatTable()
	}
	return genericFloatTable()
}

func avx512FloatTable() floatTable {
	return floatTable{
		f32: floatTiles{
			1: f32Tile1AVX512,
			2: f32Tile2AVX512,
			3: f32Tile3AVX512,
			4: f32Tile4AVX512,
			5: f32Tile5AVX512,
			6: f32Tile6AVX512,
			7: f32Tile7AVX512,
			8: f32Tile8AVX512,
		},
		f16: floatTiles{
			1: f16Tile1AVX512,
			2: f16Tile2AVX512,
			3: f16Tile3AVX512,
			4: f16Tile4AVX512,
			5: f16Tile5AVX512,
			6: f16Tile6AVX512,
			7: f16Tile7AVX512,
			8: f16Tile8AVX512,
		},
		bf16: floatTiles{
			1: bf16Tile1AVX512,
			2: bf16Tile2AVX512,
			3: bf16Tile3AVX512,
			4: bf16Tile4AVX512,
			5: bf16Tile5AVX512,
			6: bf16Tile6AVX512,
			7: bf16Tile7AVX512,
			8: bf16Tile8AVX512,
		},
	}
}

func avx2FloatTable() floatTable {
	return floatTable{
		f32: floatTiles{
			1: f32Tile1AVX2,
			2: f32Tile2AVX2,
			3: f32Tile3AVX2,
			4: f32Tile4AVX2,
			5: f32Tile5AVX2,
			6: f32Tile6AVX2,
		},
		f16: floatTiles{
			1: f16Tile1AVX2,
			2: f16Tile2AVX2,
			3: f16Tile3AVX2,
			4: f16Tile4AVX2,
			5: f16Tile5AVX2,
			6: f16Tile6AVX2,
		},
		bf16: floatTiles{
			1: bf16Tile1AVX2,
			2: bf16Tile2AVX2,
			3: bf16Tile3AVX2,
			4: bf16Tile4AVX2,
			5: bf16Tile5AVX2,
			6: bf16Tile6AVX2,
		},
	}
}

func opsTableFor(level Level) opsTable {
	switch level {
	case AVX512:
		return avx512OpsTable()
	case AVX2:
		return avx2OpsTable()
	}
	return genericOpsTable()
}

func avx512OpsTable() opsTable {
	t := genericOpsTable()
	t.rmsNorm = rmsNormBy(sumSquaresAVX512, shiftScaleAVX512, mulScaleAVX512)
	t.layerNorm = layerNormBy(sumAVX512, sumSquaresAVX512, shiftScaleAVX512, mulAVX512, addAVX512)
	t.add = addAVX512
	t.mul = mulAVX512
	t.scale = scaleAVX512
	t.addScaled = addScaledAVX512
	t.scaleAdd = scaleAddAVX512
	t.siluMul = siluMulAVX512
	t.geluMul = geluMulAVX512
	t.gelu = geluAVX512
	t.geluErf = geluErfAVX512
	t.softcap = softcapAVX512
	t.ropeNeox = ropeNeoxAVX512
	t.maximum = maximumAVX512
	t.expSum = expSumAVX512
	t.dot = dotAVX512
	t.readSum = readSumAVX512
	t.ropeNorm = ropeNormBy(ropeNormAVX512, 8)
	t.scatter = scatterBy(scatterF16AVX512)
	t.toF16 = toF16By(toF16AVX512, 16)
	t.fromF16 = fromF16By(fromF16AVX512, 16)
	return t
}

func avx2OpsTable() opsTable {
	t := genericOpsTable()
	t.rmsNorm = rmsNormBy(sumSquaresAVX2, shiftScaleAVX2, mulScaleAVX2)
	t.layerNorm = layerNormBy(sumAVX2, sumSquaresAVX2, shiftScaleAVX2, mulAVX2, addAVX2)
	t.add = addAVX2
	t.mul = mulAVX2
	t.scale = scaleAVX2
	t.addScaled = addScaledAVX2
	t.scaleAdd = scaleAddAVX2
	t.siluMul = siluMulAVX2
	t.geluMul = geluMulAVX2
	t.gelu = geluAVX2
	t.geluErf = geluErfAVX2
	t.softcap = softcapAVX2
	t.ropeNeox = ropeNeoxAVX2
	t.maximum = maximumAVX2
	t.expSum = expSumAVX2
	t.dot = dotAVX2
	t.readSum = readSumAVX2
	t.ropeNorm = ropeNormBy(ropeNormAVX2, 4)
	t.scatter = scatterBy(scatterF16AVX2)
	t.toF16 = toF16By(toF16AVX2, 8)
	t.fromF16 = fromF16By(fromF16AVX2, 8)
	return t
}
