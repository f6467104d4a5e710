"""What goes wrong, with Glance's status and sentence, in whichever of three shapes the client accepts."""

from html import escape

from starlette.responses import Response

from moorage_embedded.http_kit.answers import HttpFault, json_response, title_of


def bad(message: str) -> HttpFault:
    return HttpFault(400, message)


def forbidden(message: str) -> HttpFault:
    return HttpFault(403, message)


def not_allowed(action: str) -> HttpFault:
    return HttpFault(403, f"You are not authorized to complete {action} action.")


def not_found(message: str) -> HttpFault:
    return HttpFault(404, message)


def no_image(id: str) -> HttpFault:
    return HttpFault(404, f"No image found with ID {id}")


def conflict(message: str) -> HttpFault:
    return HttpFault(409, message)


def too_large(message: str) -> HttpFault:
    return HttpFault(413, message)


def read_only(name: str) -> HttpFault:
    return HttpFault(403, f"Attribute '{name}' is read-only.")


def reserved(name: str) -> HttpFault:
    return HttpFault(403, f"Attribute '{name}' is reserved.")


def unauthenticated(identity_url: str) -> HttpFault:
    """As the token check that stands before every OpenStack service says it."""
    challenge = f'Keystone uri="{identity_url}"' if identity_url else "Keystone"
    return HttpFault(401, "The request you have made requires authentication.", {"WWW-Authenticate": challenge})


def answer_of(fault: HttpFault, accept: str) -> Response:
    """HTML when the client accepts anything (glanceclient strips it), JSON when it asks for it, otherwise plain text."""
    title = title_of(fault.status)
    code = f"{fault.status} {title}"
    if fault.status == 401:
        body = {"error": {"code": 401, "title": title, "message": fault.message}}
        return json_response(body, 401, fault.headers)
    if "application/json" in accept:
        body_json = {"message": fault.message, "code": code, "title": title}
        return json_response(body_json, fault.status, fault.headers)
    if not accept or "text/html" in accept or "*/*" in accept:
        html = (
            f"<html>\n <head>\n  <title>{code}</title>\n </head>\n <body>\n  <h1>{code}</h1>\n"
            f"  {escape(fault.message)}<br /><br />\n\n\n </body>\n</html>"
        )
        return Response(html, fault.status, fault.headers, "text/html")
    return Response(f"{code}\n\n{fault.message}\n\n", fault.status, fault.headers, "text/plain")
