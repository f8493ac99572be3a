#include "textflag.h"

// Four rows at a time, in pieces of 64 numbers. One piece of the query serves
// four rows, and four accumulators hide the latency of the multiplication.

// func dot4AVX512(dst *int32, q *uint8, rows *int8, groups, pieces int)
TEXT ·dot4AVX512(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DX
	MOVQ q+8(FP), SI
	MOVQ rows+16(FP), DI
	MOVQ groups+24(FP), CX
	MOVQ pieces+32(FP), R8
	MOVQ R8, R9
	SHLQ $6, R9             // bytes of a row
	LEAQ (R9)(R9*2), R10    // of three

group:
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	VPXORD Z2, Z2, Z2
	VPXORD Z3, Z3, Z3
	MOVQ   SI, R11
	MOVQ   DI, R12
	MOVQ   R8, R13

piece:
	VMOVDQU64 (R11), Z4
	VPDPBUSD  (R12), Z4, Z0
	VPDPBUSD  (R12)(R9*1), Z4, Z1
	VPDPBUSD  (R12)(R9*2), Z4, Z2
	VPDPBUSD  (R12)(R10*1), Z4, Z3
	ADDQ      $64, R11
	ADDQ      $64, R12
	DECQ      R13
	JNZ       piece

	VEXTRACTI64X4 $1, Z0, Y5
	VEXTRACTI64X4 $1, Z1, Y6
	VEXTRACTI64X4 $1, Z2, Y7
	VEXTRACTI64X4 $1, Z3, Y8
	VPADDD        Y5, Y0, Y0
	VPADDD        Y6, Y1, Y1
	VPADDD        Y7, Y2, Y2
	VPADDD        Y8, Y3, Y3
	VPHADDD       Y1, Y0, Y0
	VPHADDD       Y3, Y2, Y2
	VPHADDD       Y2, Y0, Y0
	VEXTRACTI128  $1, Y0, X1
	VPADDD        X1, X0, X0
	VMOVDQU       X0, (DX)

	ADDQ $16, DX
	LEAQ (DI)(R9*4), DI
	DECQ CX
	JNZ  group
	VZEROUPPER
	RET

// func dot4AVX2(dst *int32, magnitude *uint8, sign, rows *int8, groups, pieces int)
//
// VPMADDUBSW wants one side unsigned: |q|, with q's sign moved to the row. Two
// products are at most 2*127*127, which 16 bits hold.
TEXT ·dot4AVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DX
	MOVQ magnitude+8(FP), SI
	MOVQ sign+16(FP), BX
	MOVQ rows+24(FP), DI
	MOVQ groups+32(FP), CX
	MOVQ pieces+40(FP), R8
	SHLQ $1, R8             // halves of 32 numbers
	MOVQ R8, R9
	SHLQ $5, R9             // bytes of a row
	LEAQ (R9)(R9*2), R10

	VPCMPEQW Y15, Y15, Y15
	VPSRLW   $15, Y15, Y15  // ones

group2:
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	MOVQ  SI, R11
	MOVQ  BX, AX
	MOVQ  DI, R12
	MOVQ  R8, R13

half:
	VMOVDQU (R11), Y4
	VMOVDQU (AX), Y5

	VMOVDQU    (R12), Y6
	VMOVDQU    (R12)(R9*1), Y7
	VMOVDQU    (R12)(R9*2), Y8
	VMOVDQU    (R12)(R10*1), Y9
	VPSIGNB    Y5, Y6, Y6
	VPSIGNB    Y5, Y7, Y7
	VPSIGNB    Y5, Y8, Y8
	VPSIGNB    Y5, Y9, Y9
	VPMADDUBSW Y6, Y4, Y6
	VPMADDUBSW Y7, Y4, Y7
	VPMADDUBSW Y8, Y4, Y8
	VPMADDUBSW Y9, Y4, Y9
	VPMADDWD   Y15, Y6, Y6
	VPMADDWD   Y15, Y7, Y7
	VPMADDWD   Y15, Y8, Y8
	VPMADDWD   Y15, Y9, Y9
	VPADDD     Y6, Y0, Y0
	VPADDD     Y7, Y1, Y1
	VPADDD     Y8, Y2, Y2
	VPADDD     Y9, Y3, Y3

	ADDQ $32, R11
	ADDQ $32, AX
	ADDQ $32, R12
	DECQ R13
	JNZ  half

	VPHADDD      Y1, Y0, Y0
	VPHADDD      Y3, Y2, Y2
	VPHADDD      Y2, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDD       X1, X0, X0
	VMOVDQU      X0, (DX)

	ADDQ $16, DX
	LEAQ (DI)(R9*4), DI
	DECQ CX
	JNZ  group2
	VZEROUPPER
	RET
