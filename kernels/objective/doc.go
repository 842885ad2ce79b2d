// Package objective has the losses of post-training on numbers alone: from log-probabilities of answers'
// tokens, or from scores, to one number and its derivatives. Each is one file that registers itself.
//
// Notation of the sources: S_c and S_r are the sums of log-probabilities of the chosen and the rejected
// answer's tokens, S' the same under the reference policy, n the number of tokens, σ the logistic function,
// β objective.beta, γ objective.gamma, ε objective.smoothing. All sums are taken in float64.
package objective
