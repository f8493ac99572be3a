package tensor

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
			1:  f32Tile1AVX512,
			2:  f32Tile2AVX512,
			3:  f32Tile3AVX512,
			4:  f32Tile4AVX512,
			5:  f32Tile5AVX512,
			6:  f32Tile6AVX512,
			7:  f32Tile7AVX512,
			8:  f32Tile8AVX512,
			12: f32Tile12AVX512,
		},
		f16: floatTiles{
			1:  f16Tile1AVX512,
			2:  f16Tile2AVX512,
			3:  f16Tile3AVX512,
			4:  f16Tile4AVX512,
			5:  f16Tile5AVX512,
			6:  f16Tile6AVX512,
			7:  f16Tile7AVX512,
			8:  f16Tile8AVX512,
			12: f16Tile12AVX512,
		},
		bf16: floatTiles{
			1:  bf16Tile1AVX512,
			2:  bf16Tile2AVX512,
			3:  bf16Tile3AVX512,
			4:  bf16Tile4AVX512,
			5:  bf16Tile5AVX512,
			6:  bf16Tile6AVX512,
			7:  bf16Tile7AVX512,
			8:  bf16Tile8AVX512,
			12: bf16Tile12AVX512,
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
	}
	return genericOpsTable()
}
