//! Vertex AI chooses the paths that it calls, and tells them by variables. Requests to them are brought to our own routes,
//! whichever route of ours has that path already.

use axum::Router;
use axum::extract::Request;
use axum::http::uri::PathAndQuery;
use axum::http::{Method, Uri};
use tower::ServiceBuilder;

/// Paths as Vertex AI writes them, each with its leading slash. `None`: ours alone.
#[derive(Clone, Debug, Default)]
pub struct VertexAi {
    /// POSTs here are answered as `/vertex`.
    pub predict: Option<String>,
    /// GETs here are answered as `/health`.
    pub health: Option<String>,
}

/// The routes, reachable by those paths too.
pub(crate) fn around(routes: Router, paths: &VertexAi) -> Router {
    if paths.predict.is_none() && paths.health.is_none() {
        return routes;
    }
    let paths = paths.clone();
    let bring = move |request| bring(request, &paths);
    Router::new().fallback_service(ServiceBuilder::new().map_request(bring).service(routes))
}

fn bring(mut request: Request, paths: &VertexAi) -> Request {
    let path = request.uri().path();
    let is = |chosen: &Option<String>| chosen.as_deref() == Some(path);
    let ours = match *request.method() {
        Method::POST if is(&paths.predict) => "/vertex",
        Method::GET if is(&paths.health) => "/health",
        _ => return request,
    };
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::from_static(ours));
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    request
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::StatusCode;
    use axum::routing::{get, post};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn answer(paths: &VertexAi, method: Method, uri: &str) -> (StatusCode, String) {
        let routes = Router::new()
            .route("/vertex", post("vertex"))
            .route("/health", get("health"))
            .route("/generate", post("generate"));
        let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
        let response = around(routes, paths).oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_paths_that_vertex_ai_chose_lead_to_our_routes() {
        let model = "/v1/endpoints/7/deployedModels/8";
        let paths = VertexAi { predict: Some(format!("{model}:predict")), health: Some(model.into()) };
        assert_eq!(answer(&paths, Method::POST, &format!("{model}:predict?a=b")).await.1, "vertex");
        assert_eq!(answer(&paths, Method::GET, model).await.1, "health");
        assert_eq!(answer(&paths, Method::POST, "/generate").await.1, "generate");
        assert_eq!(answer(&paths, Method::GET, "/elsewhere").await.0, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn a_path_that_is_one_of_ours_does_what_vertex_ai_means() {
        let paths = VertexAi { predict: Some("/generate".into()), health: Some("/health".into()) };
        assert_eq!(answer(&paths, Method::POST, "/generate").await.1, "vertex");
        assert_eq!(answer(&paths, Method::GET, "/health").await.1, "health");
    }
}
