//! The CRD as it is installed: what the types say, without what only confuses a reader. Pure.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

use super::RedisCluster;

/// Rendering the CRD failed; a defect of this program.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the CRD of RedisCluster as YAML: {0}")]
pub struct CrdError(String);

/// The CRD as YAML, ready for `kubectl apply -f -`.
pub fn yaml() -> Result<String, CrdError> {
    let value = json()?;
    serde_saphyr::to_string(&value).map_err(|error| CrdError(error.to_string()))
}

/// The CRD as an object.
pub fn object() -> Result<CustomResourceDefinition, CrdError> {
    serde_json::from_value(json()?).map_err(|error| CrdError(error.to_string()))
}

/// The CRD as JSON.
pub fn json() -> Result<Value, CrdError> {
    let mut value = serde_json::to_value(RedisCluster::crd()).map_err(|error| CrdError(error.to_string()))?;
    tidy(&mut value);
    shorten(&mut value);
    Ok(value)
}

/// Kubernetes' own types are described by `kubectl explain pod.spec`. Here their descriptions, three quarters of the
/// text, would only bring the definition near to the size at which `kubectl apply` fails.
fn shorten(value: &mut Value) {
    const POD_TEMPLATE: &str =
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/podTemplate/properties";
    let fields = value.pointer_mut(POD_TEMPLATE).and_then(Value::as_object_mut);
    for part in fields.into_iter().flat_map(serde_json::Map::values_mut).filter_map(Value::as_object_mut) {
        part.iter_mut().filter(|(key, _)| *key != "description").for_each(|(_, inner)| undescribe(inner));
    }
}

fn undescribe(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, value| key != "description" || !value.is_string());
            fields.values_mut().for_each(undescribe);
        }
        Value::Array(items) => items.iter_mut().for_each(undescribe),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `nullable` goes: without it the API server drops a `null` before rules and defaults see it, so that `image: null` is
/// the same as no image. Lines of a description are joined: readers wrap them anew. Formats that it does not know (`uint32`) go: it warns of them. Whole numbers lose their
/// `.0`, for readers and for tools that diff.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("nullable") == Some(&Value::Bool(true)) {
                fields.remove("nullable");
            }
            if fields.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
                fields.remove("format");
            }
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            fields.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Number(number) => {
            #[allow(clippy::cast_possible_truncation)] // checked: whole and small
            if let Some(whole) =
                number.as_f64().filter(|n| number.is_f64() && n.fract() == 0.0 && n.abs() < 1e15)
            {
                *value = Value::from(whole as i64);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests;
