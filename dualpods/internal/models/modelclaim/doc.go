// Package modelclaim reconciles ModelCaches, whose models are on PersistentVolumeClaims. The
// controller creates the claim and a Job that fetches the model into it. The status reports
// the progress. spec/modelclaim.md has the decision tables.
package modelclaim
