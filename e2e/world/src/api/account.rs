//! Programs with the rights of a `ServiceAccount`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::World;
use crate::addresses::{API_PORT, OUTER};
use crate::paths;

/// Longer than any test.
const EXPIRY_SECONDS: i64 = 24 * 3600;

impl World {
    /// Writes a kubeconfig that acts as the account, and returns its path.
    pub async fn service_account_kubeconfig(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(EXPIRY_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let accounts = Api::<ServiceAccount>::namespaced(self.client(), namespace);
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
        let answer = answer.with_context(|| format!("ask for a token of {namespace}/{account}"))?;
        let token = answer.status.context("the answer holds no token")?.token;
        let file = paths::state("kubeconfig").join(format!("{namespace}_{account}.kubeconfig"));
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "world",
            "clusters": [{"name": "world", "cluster": {
                "server": format!("https://{OUTER}:{API_PORT}"),
                "certificate-authority": paths::pki("ca.crt"),
            }}],
            "users": [{"name": account, "user": {"token": token}}],
            "contexts": [{"name": "world", "context": {
                "cluster": "world", "user": account, "namespace": namespace,
            }}],
        });
        std::fs::write(&file, config.to_string()).with_context(|| format!("write {}", file.display()))?;
        Ok(file)
    }
}
