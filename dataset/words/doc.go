// Package words cuts English text into words and sentences as Datatrove does, whose filters count them, and
// brings text into the form that its deduplication compares. Datatrove leaves both to spaCy's blank English
// pipeline; english.json has that pipeline's rules, and bench/golden/words_spacy.py writes it.
//
// Python's view of text holds here: what is a space, a letter or the end of a line is what Python 3.11
// says (Unicode 14).
package words
