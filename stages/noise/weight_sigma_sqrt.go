package noise

// sigma_sqrt is σ⁻².
var _ = RegisterWeight(Weight{Name: "sigma_sqrt", Source: "diffusers, compute_loss_weighting_for_sd3",
	Of: plain(func(l Level) float32 { return 1 / float32(l.Sigma*l.Sigma) })})
