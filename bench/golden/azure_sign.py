"""Prints what Azure's own library signs two requests with: a range of a blob, and a list of a container.

    python bench/golden/azure_sign.py     (azure-storage-blob 12)
"""

import base64

from azure.core.pipeline import PipelineContext, PipelineRequest
from azure.core.rest import HttpRequest
from azure.storage.blob._shared.authentication import SharedKeyCredentialPolicy

KEY = base64.b64encode(b"a key of thirty-two bytes, or so.").decode()
policy = SharedKeyCredentialPolicy("acc", KEY)
HEADERS = {"x-ms-version": "2021-08-06", "x-ms-date": "Fri, 24 May 2013 00:00:00 GMT"}
for url, more in (("https://acc.blob.core.windows.net/data/a%20b%2Bc.tar", {"x-ms-range": "bytes=0-9"}),
                  ("https://acc.blob.core.windows.net/data?comp=list&prefix=x%2Fy-&restype=container&marker=2%21%20z", {}),
                  ("http://127.0.0.1:10000/acc/data/x.tar", {"x-ms-range": "bytes=5-9"})):
    r = HttpRequest("GET", url, headers=HEADERS | more)
    policy.on_request(PipelineRequest(r, PipelineContext(None)))
    print(r.headers["Authorization"])
