//go:build !amd64

package webp

// native tells whether the assembly runs here.
var native = false

const notNative = "webp: assembly was called where there is none"

func readBlock(r, at *byte, coef *int16, step *[2]int32, first, context int) byte {
	panic(notNative)
}

func readModes(r, probs, above, left, modes *byte) { panic(notNative) }

func idctAddRow(dst *byte, coef *int16) { panic(notNative) }

func idctAddSquare(dst *byte, coef *int16) { panic(notNative) }

func idctAdd(dst *byte, coef *int16) { panic(notNative) }

func trueMotion(dst *byte, eights int) { panic(notNative) }

//lfvet:params an assembly function's own arguments
func filterMacroblock(y, u, v *byte, strideY, strideC, edges, limit, inner, high int) {
	panic(notNative)
}

func yuv32(dst, y, u, uf, v, vf *byte, n int) { panic(notNative) }

func predict(px, above *uint32, n int) { panic(notNative) }

var predict0, predict1, predict2, predict3, predict4, predict5, predict6 = predict, predict, predict, predict, predict,
	predict, predict

var predict7, predict8, predict9, predict10, predict11, predict12, predict13 = predict, predict, predict, predict,
	predict, predict, predict

func addGreen8(px *uint32, n int) { panic(notNative) }

func uncross8(px *uint32, n, tile int) { panic(notNative) }

func rgb8(dst *byte, px *uint32, n int) { panic(notNative) }

func readLiterals(r *byte, pix *uint32, most int, green, red, blue *uint32, alpha uint32) (n, symbol int) {
	panic(notNative)
}
