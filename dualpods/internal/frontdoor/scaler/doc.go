// Package scaler is an external scaler for KEDA: it tells the demand for Models whose autoscaling.mode is External, and
// says at once when a request for a Model at zero comes (https://keda.sh/docs/latest/concepts/external-scalers/).
package scaler
