package webp

import (
	_ "embed"
	"strconv"
	"strings"
)

const (
	planes = 4 // kinds of blocks: luma without its constant term, the 16 constant terms, chroma, luma
	bands  = 8 // groups of positions in a block
)

//go:embed tables.txt
var tables string

// The tables of RFC 6386, which tables.txt holds.
var (
	// updateProbs tell how likely a probability of coefficients is to be replaced (section 13.4), and defaultProbs are
	// these probabilities before that (section 13.5).
	updateProbs, defaultProbs [planes][bands][3][11]byte
	// modeProbs are the probabilities of a 4×4 block's mode after the modes above it and left of it (section 11.5).
	modeProbs [modes][modes][9]byte
)

func init() {
	next := strings.Fields(tables[strings.Index(tables, "\n\n"):])
	fill := func(row []byte) {
		for i := range row {
			n, err := strconv.ParseUint(next[i], 10, 8)
			if err != nil {
				panic("webp: tables.txt: " + err.Error())
			}
			row[i] = byte(n)
		}
		next = next[len(row):]
	}
	for _, t := range []*[planes][bands][3][11]byte{&updateProbs, &defaultProbs} {
		for i := range planes * bands * 3 {
			fill(t[i/(bands*3)][i/3%bands][i%3][:])
		}
	}
	for i := range modes * modes {
		fill(modeProbs[i/modes][i%modes][:])
	}
}

// Step sizes of the constant and of the other terms by their index (section 14.1).
var (
	stepsDC = [128]int32{
		4, 5, 6, 7, 8, 9, 10, 10, 11, 12, 13, 14, 15, 16, 17, 17,
		18, 19, 20, 20, 21, 21, 22, 22, 23, 23, 24, 25, 25, 26, 27, 28,
		29, 30, 31, 32, 33, 34, 35, 36, 37, 37, 38, 39, 40, 41, 42, 43,
		44, 45, 46, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58,
		59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74,
		75, 76, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89,
		91, 93, 95, 96, 98, 100, 101, 102, 104, 106, 108, 110, 112, 114, 116, 118,
		122, 124, 126, 128, 130, 132, 134, 136, 138, 140, 143, 145, 148, 151, 154, 157,
	}
	stepsAC = [128]int32{
		4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
		20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35,
		36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51,
		52, 53, 54, 55, 56, 57, 58, 60, 62, 64, 66, 68, 70, 72, 74, 76,
		78, 80, 82, 84, 86, 88, 90, 92, 94, 96, 98, 100, 102, 104, 106, 108,
		110, 112, 114, 116, 119, 122, 125, 128, 131, 134, 137, 140, 143, 146, 149, 152,
		155, 158, 161, 164, 167, 170, 173, 177, 181, 185, 189, 193, 197, 201, 205, 209,
		213, 217, 221, 225, 229, 234, 239, 245, 249, 254, 259, 264, 269, 274, 279, 284,
	}
)
