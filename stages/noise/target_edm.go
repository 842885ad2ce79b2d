package noise

// edm and edm_v are EDM's network outputs F: x0 = c_skip·x + c_out·F with c_skip = σ_d²/(σ²+σ_d²) and c_out =
// ±σ·σ_d/√(σ²+σ_d²). diffusers calls them "epsilon" and "v_prediction" in EDM's files.
var (
	_ = RegisterTarget(edmTarget("edm", 1))
	_ = RegisterTarget(edmTarget("edm_v", -1))
)

// edmScales are c_skip, and c_out without its sign.
func edmScales(sigma, data float32) (skip, out float32) {
	sum := float32(sigma*sigma) + float32(data*data)
	return float32(data*data) / sum, float32(sigma*data) / sqrt32(sum)
}

func edmTarget(name string, sign float32) Target {
	clean := func(l Level, x, out []float32) []float32 {
		skip, by := edmScales(l.Sigma, l.Data)
		return axpy(skip, x, sign*by, out)
	}
	return Target{Name: name, Source: "arXiv:2206.00364, table 1", Of: func(l Level, x0, noise []float32) []float32 {
		skip, by := edmScales(l.Sigma, l.Data)
		return over(axpy(1, x0, -skip, l.Mix(x0, noise)), sign*by)
	}, X0: clean, Noise: func(l Level, x, out []float32) []float32 {
		return over(axpy(1, x, -1, clean(l, x, out)), l.Sigma)
	}}
}
