package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// portable is the level of plain Go.
var portable = isa{
	name: "go", mr: 4, nr: 4, tile: goTile, tileRows: goTileRows, transpose: goTranspose, spread: goSpread,
	rowTimes: goRowTimes,
	dot:      goDot, dot3: goDot3, axpy: goAxpy, mulAcc: goMulAcc, add: goAdd, mul: goMul, scale: goScale,
	shift: goShift, gate: goGate, gelu: goGELU, geluBwd: goGELUBwd, gateBwd: goGateBwd, swiglu: goSwiGLU,
	swigluBwd: goSwiGLUBwd, norm: goNorm, normDX: goNormDX, sum: goSum, centred: goCentred,
	moments: goMoments,
	layer:   goLayer, max: goMax, relu: goReLU, reluBwd: goReLUBwd, larger: goLarger, largerAt: goLargerAt,
	absMax: goAbsMax, absMaxes: goAbsMaxes, roundBits: goRoundBits,
	roundEach: goRoundEach, chances: goChances, butterfly: goButterfly,
	runMaxes: goRunMaxes, runs: goRuns, exp: goExp, soft: goSoft, softPast: goSoft,
	softGrad: goSoftGrad,
	rope:     goRope, ropePairs: goRopePairs, nibbles: goNibbles, fromBF16: goFromBF16, fromF16: goFromF16, toBF16: goToBF16,
	toF16: goToF16, addRuns: goAddRuns,
	adamW: goAdamW, sgd: goSGD, sumSquares: goSumSquares, peak: goPeak, lanes: 1,
}

// goAddRuns is addRuns of isa.
func goAddRuns(y []float32, step int, x []float32, ld, n, width int) {
	for i := range n {
		for j := range width {
			y[i*step+j] += x[i*ld+j]
		}
	}
}

// goTile is the reference for the kernels in assembly: n tiles of 4 by 4, each the product of a
// packed column of a and a panel of b over k.
func goTile(a []float32, aStep, aNext int, b []float32, bStep int, c []float32, ldc, cNext int, k, n, acc int) {
	for t := range n {
		var s [4][4]float32
		at, pa, pb := a[t*aNext:], 0, 0
		for range k {
			x, y := at[pa:pa+4:pa+4], b[pb:pb+4:pb+4]
			goOuter(&s, x[0], x[1], x[2], x[3], y)
			pa += aStep
			pb += bStep
		}
		goStore(c[t*cNext:], ldc, &s, acc)
	}
}

// goTileRows is goTile for an a that lies by rows, with four rows to a tile.
func goTileRows(a []float32, aStep, aNext int, b []float32, bStep int, c []float32, ldc, cNext int, k, n, acc int) {
	for t := range n {
		var s [4][4]float32
		a0 := a[t*aNext:][:k]
		a1, a2, a3 := a[t*aNext+aStep:][:k], a[t*aNext+2*aStep:][:k], a[t*aNext+3*aStep:][:k]
		for p := range k {
			goOuter(&s, a0[p], a1[p], a2[p], a3[p], b[p*bStep:p*bStep+4])
		}
		goStore(c[t*cNext:], ldc, &s, acc)
	}
}

// goOuter adds the outer product of four numbers and four columns. It is written out because the
// compiler does not unroll.
func goOuter(s *[4][4]float32, x0, x1, x2, x3 float32, y []float32) {
	y0, y1, y2, y3 := y[0], y[1], y[2], y[3]
	s[0][0] += x0 * y0
	s[0][1] += x0 * y1
	s[0][2] += x0 * y2
	s[0][3] += x0 * y3
	s[1][0] += x1 * y0
	s[1][1] += x1 * y1
	s[1][2] += x1 * y2
	s[1][3] += x1 * y3
	s[2][0] += x2 * y0
	s[2][1] += x2 * y1
	s[2][2] += x2 * y2
	s[2][3] += x2 * y3
	s[3][0] += x3 * y0
	s[3][1] += x3 * y1
	s[3][2] += x3 * y2
	s[3][3] += x3 * y3
}

// goStore stores a tile, or adds it if acc is 1.
func goStore(c []float32, ldc int, s *[4][4]float32, acc int) {
	for i := range 4 {
		row := c[i*ldc : i*ldc+4]
		for j := range row {
			if acc == 1 {
				row[j] += s[i][j]
			} else {
				row[j] = s[i][j]
			}
		}
	}
}

// goTranspose writes up to 16 rows as columns of a matrix whose rows lie step apart.
func goTranspose(dst []float32, step int, src []float32, ld, blocks int) {
	for i := range min(16, step) {
		for p, x := range src[i*ld:][:16*blocks] {
			dst[p*step+i] = x
		}
	}
}

// goRowTimes adds the products of two rows, one after the other.
func goRowTimes(c, x, w []float32, _, blocks, _, _, _ int) {
	s, w := c[0], w[:blocks]
	for p, v := range x[:blocks] {
		s += v * w[p]
	}
	c[0] = s
}

// goSpread copies rows into panels of a width, one panel behind the other.
func goSpread(dst []float32, next, width, panels int, src []float32, ld, rows int) {
	for p := range rows {
		for q := range panels {
			copy(dst[q*next+p*width:][:width], src[p*ld+q*width:])
		}
	}
}

// goDot is Σ a·b in four sums, so that no addition has to wait for the one before.
func goDot(a, b []float32) float32 {
	var s [4]float32
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s[0] += a[i] * b[i]
		s[1] += a[i+1] * b[i+1]
		s[2] += a[i+2] * b[i+2]
		s[3] += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		s[0] += a[i] * b[i]
	}
	return (s[0] + s[1]) + (s[2] + s[3])
}

func goDot3(a, c, b []float32) float32 {
	var s float32
	for i, x := range a {
		s += x * b[i] * c[i]
	}
	return s
}

func goAxpy(y, x []float32, s float32) {
	for i := range y {
		y[i] += s * x[i]
	}
}

func goMulAcc(y, a, b []float32, s float32) {
	for i := range y {
		y[i] += a[i] * b[i] * s
	}
}

func goAdd(y, a, b []float32) {
	for i := range y {
		y[i] = a[i] + b[i]
	}
}

func goMul(y, a, b []float32) {
	for i := range y {
		y[i] = a[i] * b[i]
	}
}

func goScale(y, x []float32, s float32) {
	for i := range y {
		y[i] = x[i] * s
	}
}

// Coefficients of exp: ln 2 in two parts, and (e^r - 1 - r)/r² on |r| <= ln2/2 (minimax, relative error
// 2e-8).
const (
	log2e = 1.44269504088896341
	ln2Hi = 0.693359375
	ln2Lo = -2.12194440e-4
	expC0 = 1.9875691500e-4
	expC1 = 1.3981999507e-3
	expC2 = 8.3334519073e-3
	expC3 = 4.1665795894e-2
	expC4 = 1.6666665459e-1
	expC5 = 5.0000001201e-1
	// expMin and expMax are beyond the range where e^x is neither 0 nor infinite.
	expMin, expMax = -104, 104
)

// exp32 is e^x in float32: 0 below -104, a NaN stays one.
func exp32(x float32) float32 {
	if x != x {
		return x
	}
	x = min(max(x, expMin), expMax)
	n := float32(math.RoundToEven(float64(x * log2e)))
	r := x - n*ln2Hi - n*ln2Lo
	p := float32(expC0)
	for _, c := range [5]float32{expC1, expC2, expC3, expC4, expC5} {
		p = p*r + c
	}
	half := int32(n) >> 1
	return (p*r*r + r + 1) * pow2(half) * pow2(int32(n)-half)
}

func pow2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

func sigmoid(x float32) float32 { return 1 / (1 + exp32(-x)) }

func goShift(y, x []float32, s float32) {
	for i := range y {
		y[i] = x[i] + s
	}
}

// goGate is the sigmoid of x·(a + b·x²), of which SiLU and the tanh form of GELU are cases.
func goGate(y, x []float32, a, b float32) {
	for i, v := range x[:len(y)] {
		f := a
		if b != 0 { // v² may be infinite
			f += b * v * v
		}
		y[i] = sigmoid(v * f)
	}
}

// phiC are the coefficients of Φ(-a)·e^(a²/2) in t = 1/(1 + 0.33·a/√2) for a >= 0, a fit with a relative error of 1e-7.
var phiC = [8]float32{-0.06767154484987259, 0.23011320829391479, -0.1755657196044922, 0.20424160361289978,
	0.02361480332911015, 0.10061056166887283, 0.09147819876670837, 0.0931788831949234}

// normal is Φ(x), the distribution function of the normal distribution, and exp(-x²/2).
func normal(x float32) (phi, exp float32) {
	t, p := 1/(1+0.33*math.Sqrt2/2*float32(math.Abs(float64(x)))), float32(0)
	exp = exp2(x * x * (-math.Log2E / 2))
	for _, c := range phiC {
		p = p*t + c
	}
	if p *= t * exp; x > 0 {
		p = 1 - p
	}
	return p, exp
}

// goGELU is x·Φ(x), with the exact normal distribution.
func goGELU(y, x []float32) {
	for i, v := range x[:len(y)] {
		p, _ := normal(v)
		y[i] = v * p
	}
}

// goGELUBwd is dy·(Φ(x) + x·φ(x)); the constant is 1/√(2π).
func goGELUBwd(dx, dy, x []float32) {
	for i, v := range x[:len(dx)] {
		p, e := normal(v)
		dx[i] = dy[i] * (p + v*e*0.3989422804014327)
	}
}

// goGateBwd is the gradient of x·s with s from goGate.
func goGateBwd(dx, dy, x, s []float32, a, b float32) {
	for i, v := range x[:len(dx)] {
		v = min(max(v, -1e4), 1e4) // beyond, s or 1-s is nothing, and so is what v makes of it
		dx[i] = dy[i] * s[i] * (1 + v*(1-s[i])*(a+3*b*v*v))
	}
}

func goSwiGLU(y, g, u []float32) {
	for i := range y {
		y[i] = g[i] * sigmoid(g[i]) * u[i]
	}
}

// goSwiGLUBwd gives dg and du from dy, with the sigmoid computed again rather than kept.
func goSwiGLUBwd(dg, du, dy, g, u []float32) {
	for i, d := range dy {
		x := g[i]
		s := sigmoid(x)
		dg[i], du[i] = d*u[i]*s*(1+x*(1-s)), d*x*s
	}
}

func goNorm(y, x, w []float32, r float32) {
	for i := range y {
		y[i] = x[i] * r * w[i]
	}
}

// goNormDX is the last step of the norms' gradient; k is the mean that the caller has summed.
func goNormDX(y, dy, x, w []float32, r, k float32) {
	for i := range y {
		y[i] = r * (dy[i]*w[i] - x[i]*k)
	}
}

func goSum(x []float32) float32 {
	var s float32
	for _, v := range x {
		s += v
	}
	return s
}

// goCentred is the sum of squared distances from the mean; taking it after the mean loses less than
// the difference of two large sums.
func goCentred(x []float32, mean float32) float32 {
	var s float32
	for _, v := range x {
		s += (v - mean) * (v - mean)
	}
	return s
}

func goMoments(x []float32, n float32) (sum, squares float32) {
	sum = goSum(x)
	return sum, goCentred(x, sum/n)
}

func goLayer(y, x, w, b []float32, mean, r float32) {
	for i := range y {
		y[i] = (x[i]-mean)*r*w[i] + b[i]
	}
}

func goMax(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}

// goExp is c·exp(x·scale + shift), and returns the sum.
func goExp(y, x []float32, scale, shift, c float32) float32 {
	var s float32
	for i := range y {
		y[i] = c * exp32(x[i]*scale+shift)
		s += y[i]
	}
	return s
}

// exp2C are the coefficients of 2^r on |r| <= 1/2 (minimax with 2^0 = 1, relative error 9e-8).
var exp2C = [5]float32{1.326472731307149e-3, 9.671512991189957e-3, 5.550733581185341e-2,
	2.4022242426872253e-1, 6.931470036506653e-1}

// exp2 is 2^t in float32: 0 below -160, a NaN stays one.
func exp2(t float32) float32 {
	if t != t {
		return t
	}
	t = min(max(t, -160), 160)
	n := float32(math.RoundToEven(float64(t)))
	r, p := t-n, float32(0)
	for _, c := range exp2C {
		p = p*r + c
	}
	half := int32(n) >> 1
	return (p*r + 1) * pow2(half) * pow2(int32(n)-half)
}

// log2 is the logarithm of a float32 to base 2, -Inf of 0: 2·atanh((m-1)/(m+1)) for a number m near 1,
// relative error 1e-9.
func log2(x float32) float64 {
	if !(x > 0x1p-126 && x <= math.MaxFloat32) {
		return math.Log2(float64(x))
	}
	b := math.Float32bits(x) - 0x3f3504f3 // the root of 1/2
	m := float64(math.Float32frombits(b&0x7fffff + 0x3f3504f3))
	s := (m - 1) / (m + 1)
	q := s * s
	return float64(int32(b)>>23) + s*(2/math.Ln2)*(1+q*(1./3+q*(1./5+q*(1./7+q*(1./9+q*(1./11))))))
}

// goSoft is one step of a running softmax in powers of 2: it returns the new maximum and the sum
// for it. The bound of the shift keeps rows that see nothing from giving NaN.
func goSoft(y, x []float32, scale, top float32) (most, sum float32) {
	most = max(top, goMax(x)*scale)
	shift := max(most, -math.MaxFloat32)
	for i, v := range x {
		y[i] = exp2(float32(v*scale) - shift) // rounded as most is: no fused subtraction
		sum += y[i]
	}
	return most, sum
}

// goSoftGrad gives the probabilities again from lse, and the gradients of the scores.
func goSoftGrad(p, ds, s, dp []float32, scale, lse, delta, factor float32) {
	for i, v := range s {
		e := exp2(min(float32(v*scale)-lse, 0)) // lse is rounded: by a lot where scores are large
		p[i], ds[i] = e, (dp[i]-delta)*factor*e
	}
}

// goRope turns pairs of columns that lie len(cos) apart; sign -1 turns back.
func goRope(y, x, cos, sin []float32, heads, width int, sign float32) {
	r := len(cos)
	for h := range heads {
		a, b := x[h*width:][:r], x[h*width+r:][:r]
		ya, yb := y[h*width:][:r], y[h*width+r:][:r]
		for i, c := range cos {
			u, v, s := a[i], b[i], sin[i]*sign
			ya[i], yb[i] = u*c-v*s, v*c+u*s
		}
	}
}

// goRopePairs turns pairs of neighbouring columns.
func goRopePairs(y, x, cos, sin []float32, heads, width int, sign float32) {
	for h := range heads {
		a, b := x[h*width:][:2*len(cos)], y[h*width:][:2*len(cos)]
		for i, c := range cos {
			u, v, s := a[2*i], a[2*i+1], sin[i]*sign
			b[2*i], b[2*i+1] = u*c-v*s, v*c+u*s
		}
	}
}

func goFromBF16(y []float32, x []uint16) {
	for i := range y {
		y[i] = tensor.BF16Value(x[i])
	}
}

func goFromF16(y []float32, x []uint16) {
	for i := range y {
		y[i] = tensor.F16Value(x[i])
	}
}

func goToBF16(y []uint16, x []float32) {
	for i := range y {
		y[i] = tensor.BF16Bits(x[i])
	}
}

func goToF16(y []uint16, x []float32) {
	for i := range y {
		y[i] = tensor.F16Bits(x[i])
	}
}

// goAdamW is one step of AdamW (arXiv:1711.05101) with all constants of the step worked out before.
func goAdamW(p, m, v, g []float32, h *adamConst) {
	for i := range p {
		x := g[i] * h.factor
		mi := m[i] + h.m1*(x-m[i])
		vi := h.beta2*v[i] + h.m2*x*x
		p[i] = p[i]*h.keep - h.step*mi/(float32(math.Sqrt(float64(vi)))*h.rootInv+h.eps)
		m[i], v[i] = mi, vi
	}
}

// goSGD is one step of SGD with momentum; the decay acts through the momentum, as in PyTorch.
func goSGD(p, m, g []float32, h *sgdConst) {
	for i := range p {
		m[i] = h.momentum*m[i] + (g[i]*h.factor + h.decay*p[i])
		p[i] -= h.lr * m[i]
	}
}

// goSumSquares sums in float64, as the squares of many gradients differ widely in size.
func goSumSquares(x []float32) float64 {
	var s [4]float64
	i := 0
	for ; i+4 <= len(x); i += 4 {
		for j := range s {
			s[j] += float64(x[i+j]) * float64(x[i+j])
		}
	}
	for ; i < len(x); i++ {
		s[0] += float64(x[i]) * float64(x[i])
	}
	return (s[0] + s[1]) + (s[2] + s[3])
}

// goPeak keeps the adders busy, to measure the highest rate. The result is stored so that the
// compiler does not drop the loop.
func goPeak(n int, x []float32) {
	var a, b, c, d, e, f float32
	for range 2 * n {
		a, b, c, d, e, f = a+x[0], b+x[1], c+x[2], d+x[3], e+x[4], f+x[5]
	}
	x[15] = a + b + c + d + e + f
}
