//go:build !amd64

package media

// native tells whether the assembly runs here.
var native = false

const notNative = "media: assembly was called where there is none"

//lfvet:params an assembly function's own arguments
func inversePair(a, b, qa, qb *int16, outA *byte, strideA int, outB *byte, strideB int) {
	panic(notNative)
}

func smooth22(dst, near, far *byte, n int) { panic(notNative) }

func smooth21(dst, near *byte, n int) { panic(notNative) }

func colours(dst, y, cb, cr *byte, n int) { panic(notNative) }

func columnSums(dst, src *byte, stride, pairs int, w *uint16, n, bits int) { panic(notNative) }

//lfvet:params an assembly function's own arguments
func rowSums(dst, src *byte, dstStep, srcStep int, first *int32, groups int, w *uint16, n, bits int) {
	panic(notNative)
}

//lfvet:params an assembly function's own arguments
func runCodes(c *int16, whole *uint32, order *byte, b *byte, size int, at *int, acc *uint64, count *uint, k int) int {
	panic(notNative)
}

func planar(red, green, blue, src *byte, n int) { panic(notNative) }

func unfilterSub(dst, src, above *byte, n, size int) { panic(notNative) }

func unfilterMean(dst, src, above *byte, n, size int) { panic(notNative) }

func unfilterPaeth(dst, src, above *byte, n, size int) { panic(notNative) }

func unfilterUp(dst, src, above *byte, n int) { panic(notNative) }

func dropAlpha(dst, px *byte, n int) { panic(notNative) }
