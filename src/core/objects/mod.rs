//! Desired Kubernetes objects as functions of the valid spec, one kind a file. Pure.
