// Package policies is the room of robots' policies: how recordings become samples, what a policy that is asked
// gives, and its files as lerobot keeps them. A policy gives numbers by a model of diffusion, writes its actions
// as tokens of a vision-language model (Scribe), or is hosted by one that an expert of actions reads (Guide).
package policies
